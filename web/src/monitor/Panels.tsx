import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { bytes, number, percent, plural, seconds } from '../lib/format.ts';
import { byLabel, minus, quantile, total } from '../lib/prometheus.ts';
import type { History } from './history.ts';
import { between, histograms, parts, type Moment, type Slot, type Span } from './sample.ts';

export function Panel(props: { title: string; note?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class={`panel ${props.wide ? 'wide' : ''}`} aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{props.title}</h2>
        {props.note && <span class="small muted number">{props.note}</span>}
      </div>
      {props.children}
    </section>
  );
}

export function Tile(props: { label: string; value: string; note?: string }) {
  return (
    <div class="tile">
      <div class="small muted">{props.label}</div>
      <div class="tile-value number">{props.value}</div>
      <div class="small muted number">{props.note ?? '\u00a0'}</div>
    </div>
  );
}

/** Where the time of a token went, over the whole window: one bar and its numbers. */
export function WaitBar({ span }: { span: Span }) {
  const whole = parts.reduce((sum, part) => sum + span.spent[part.key], 0);
  if (span.rows === 0 || !(whole > 0)) return <p class="muted small">Nothing was computed in this time.</p>;
  const most = parts.reduce((a, b) => (span.spent[b.key] > span.spent[a.key] ? b : a));
  return (
    <>
      <div class="bar" role="img" aria-label={parts.map((p) => `${p.label} ${percent(span.spent[p.key] / whole)}`).join(', ')}>
        {parts.map((p) => (
          <i key={p.key} title={`${p.label}: ${percent(span.spent[p.key] / whole)}`} style={`width:${(span.spent[p.key] / whole) * 100}%;background:var(${p.colour})`} />
        ))}
      </div>
      <table class="plain">
        <tbody>
          {parts.map((p) => (
            <tr key={p.key} title={p.hint}>
              <th>
                <i class="swatch" style={`background:var(${p.colour})`} />
                {p.label}
              </th>
              <td>{seconds(span.spent[p.key] / span.rows)}</td>
              <td>{percent(span.spent[p.key] / whole)}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th>A token, on average</th>
            <td>{seconds(whole / span.rows)}</td>
            <td />
          </tr>
        </tfoot>
      </table>
      <p class="small muted">
        Mostly {most.label.toLowerCase()}: {percent(span.spent[most.key] / whole)}. Tokens of prompts are counted too; what is computed in one batch
        is divided among its tokens.
      </p>
    </>
  );
}

const uses: Record<string, [string, string]> = {
  dense_weights: ['Dense weights', '--c3'],
  expert_cache: ['Expert cache', '--c1'],
  kv: ['KV cache', '--c5'],
  buffers: ['Buffers', '--c2'],
};
const tierNames: Record<string, string> = { device: 'VRAM', host: 'RAM', file: 'SSD' };

function Amounts(props: { label: string; whole: number; wholeText: string; amounts: [string, string, number][] }) {
  return (
    <div class="amounts">
      <div class="row small">
        <span class="grow">{props.label}</span>
        <span class="number">{props.wholeText}</span>
      </div>
      <div class="bar thin" role="img" aria-label={props.amounts.map(([name, , n]) => `${name} ${bytes(n)}`).join(', ')}>
        {props.amounts.map(([name, paint, n]) => (
          <i key={name} title={`${name}: ${bytes(n)}`} style={`width:${(n / Math.max(props.whole, 1)) * 100}%;background:var(${paint})`} />
        ))}
      </div>
      <div class="legend small">
        {props.amounts.map(([name, paint, n]) => (
          <span key={name} class="legend-item">
            <i class="swatch" style={`background:var(${paint})`} />
            {name}
            <b class="number">{bytes(n)}</b>
          </span>
        ))}
      </div>
    </div>
  );
}

export function Memory({ sample }: { sample: Moment }) {
  const m = sample.metrics;
  const held = [...byLabel(m, 'moetier:memory_bytes', 'for')].map(([use, n]): [string, string, number] => [uses[use]?.[0] ?? use, uses[use]?.[1] ?? '--c4', n]);
  const resident = total(m, 'moetier:process_resident_bytes') ?? 0;
  const named = held.reduce((sum, [, , n]) => sum + n, 0);
  if (resident > named && named > 0) held.push(['Other', '--c6', resident - named]);
  const tiers = [...byLabel(m, 'moetier:tier_budget_bytes', 'tier')];
  const taken = byLabel(m, 'moetier:tier_bytes', 'tier');
  const transit = byLabel(m, 'moetier:tier_transit_bytes', 'tier');
  const slots = byLabel(m, 'moetier:tier_slots', 'tier');
  const reserved = total(m, 'moetier:kv_reserved_bytes') ?? 0;
  const kv = byLabel(m, 'moetier:memory_bytes', 'for').get('kv') ?? 0;
  const cycle = total(m, 'moetier:token_cycle_bytes') ?? 0;
  if (held.length === 0) return <p class="muted small">This server tells nothing of its memory.</p>;
  return (
    <div class="stack">
      <Amounts label="By what it is for" whole={Math.max(named, resident)} wholeText={`${bytes(resident)} resident`} amounts={held} />
      {tiers
        .filter(([tier, budget]) => budget > 0 || (taken.get(tier) ?? 0) > 0)
        .map(([tier, budget]) => {
          const all = taken.get(tier) ?? 0;
          const moving = transit.get(tier) ?? 0;
          return (
            <Amounts
              key={tier}
              label={`Experts in ${tierNames[tier] ?? tier}`}
              whole={Math.max(budget, all)}
              wholeText={`${bytes(all)} of ${bytes(budget)}, ${plural(slots.get(tier) ?? 0, 'slot')}`}
              amounts={[
                ['Kept', '--c1', Math.max(all - moving, 0)],
                ['On its way', '--c2', moving],
                ['Free', '--border', Math.max(budget - all, 0)],
              ]}
            />
          );
        })}
      {reserved > 0 && (
        <Amounts label="KV cache" whole={reserved} wholeText={`${percent(kv / reserved)} of ${bytes(reserved)}`} amounts={[['Used', '--c5', kv]]} />
      )}
      {cycle > 0 && <p class="small muted">One token can need {bytes(cycle)} of experts at most.</p>}
    </div>
  );
}

function Progress({ slot }: { slot: Slot }) {
  const share = slot.prompt > 0 ? slot.promptDone / slot.prompt : 0;
  return (
    <span class="meter" title={`${slot.promptDone} of ${slot.prompt}`}>
      <i style={`width:${Math.min(share, 1) * 100}%`} />
    </span>
  );
}

export function Slots({ sample, history }: { sample: Moment; history: History }) {
  const speed = (slot: Slot) => {
    const same = (s: Slot) => s.id === slot.id && s.task === slot.task && s.busy;
    const before = history.recent.find((moment) => moment.slots.some(same));
    const old = before?.slots.find(same);
    const time = sample.time - (before?.time ?? 0);
    if (!slot.busy || !old || time <= 0) return '';
    const tokens = slot.decoded - old.decoded + (slot.promptDone - old.promptDone);
    return tokens > 0 ? number(tokens / time) : '';
  };
  if (sample.slots.length === 0) return <p class="muted small">This server has no slots to show.</p>;
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th>Slot</th>
            <th class="text">State</th>
            <th>Request</th>
            <th>Prompt</th>
            <th>Kept</th>
            <th>Written</th>
            <th>Left</th>
            <th>tok/s</th>
            <th>Context</th>
            <th>Time</th>
          </tr>
        </thead>
        <tbody>
          {sample.slots.map((slot) => (
            <tr key={slot.id} class={slot.busy ? '' : 'idle'}>
              <th>{slot.id}</th>
              <td class="text">
                <span class={`state ${slot.state}`}>{slot.state}</span>
              </td>
              <td>{slot.busy ? slot.task : ''}</td>
              <td>
                {slot.busy && slot.promptDone < slot.prompt && <Progress slot={slot} />}
                {slot.busy ? slot.prompt.toLocaleString('en') : ''}
              </td>
              <td>{slot.busy ? slot.promptCached.toLocaleString('en') : ''}</td>
              <td>{slot.busy ? slot.decoded.toLocaleString('en') : ''}</td>
              <td>{slot.busy && slot.remaining >= 0 ? slot.remaining.toLocaleString('en') : ''}</td>
              <td>{speed(slot)}</td>
              <td title={`${slot.held} of ${slot.context}`}>{slot.context > 0 ? percent(slot.held / slot.context) : ''}</td>
              <td>{slot.busy ? seconds(slot.seconds) : ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Requests({ sample }: { sample: Moment }) {
  const m = sample.metrics;
  const finished = [...byLabel(m, 'moetier:requests_total', 'finish')].filter(([, n]) => n > 0);
  const refused = total(m, 'moetier:requests_refused_total') ?? 0;
  const kept = total(m, 'moetier:cached_prompt_tokens_total') ?? 0;
  const items: [string, string][] = [
    ['Served now', number(total(m, 'llamacpp:requests_processing') ?? NaN)],
    ['In the queue', number(total(m, 'llamacpp:requests_deferred') ?? NaN)],
    ...finished.map(([how, n]): [string, string] => [`Ended: ${how.replace(/_/g, ' ')}`, n.toLocaleString('en')]),
    ['Refused, queue full', refused.toLocaleString('en')],
    ['Prompt tokens kept from before', kept.toLocaleString('en')],
  ];
  return (
    <table class="plain">
      <tbody>
        {items.map(([name, value]) => (
          <tr key={name}>
            <th>{name}</th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Latencies({ history, window }: { history: History; window: number }) {
  const sample = history.samples.at(-1)!;
  const first = history.samples[history.from(window, true)]!;
  const before = first.latencies;
  const now = sample.latencies;
  if (now.size === 0) return <p class="muted small">This server has no histograms.</p>;
  return (
    <table class="plain">
      <thead>
        <tr>
          <td />
          <td>half below</td>
          <td>95 % below</td>
          <td>count</td>
        </tr>
      </thead>
      <tbody>
        {histograms.map(([name, label]) => {
          const all = now.get(name);
          if (!all) return null;
          const recent = first === sample ? all : minus(all, before.get(name));
          return (
            <tr key={name}>
              <th>{label}</th>
              <td>{seconds(quantile(recent, 0.5))}</td>
              <td>{seconds(quantile(recent, 0.95))}</td>
              <td>{(recent.counts.at(-1) ?? 0).toLocaleString('en')}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** Everything since the window's beginning as one span; null before there are two samples. */
export function windowSpan(history: History, window: number): Span | null {
  const first = history.samples[history.from(window, true)];
  const last = history.samples.at(-1);
  return first && last && first !== last ? between(first, last) : null;
}

/** Of /props: each setting with its value and where that came from. */
export function Settings({ settings }: { settings: Record<string, unknown> }) {
  const rows = Object.entries(settings).map(([name, given]): [string, string, string] => {
    const one = given as { value?: unknown; source?: unknown } | null;
    const nested = one !== null && typeof one === 'object' && 'value' in one;
    const value = nested ? one.value : given;
    return [name, typeof value === 'string' ? value : JSON.stringify(value), nested && one.source !== undefined ? String(one.source) : ''];
  });
  return (
    <details class="more">
      <summary>Settings of the server</summary>
      <div class="scroll" tabIndex={0}>
        <table>
          <tbody>
            {rows.map(([name, value, source]) => (
              <tr key={name}>
                <th class="text">{name}</th>
                <td class="text mono">{value}</td>
                <td class="text muted">{source}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
