import { useEffect, useId, useState } from 'preact/hooks';
import { bytes, number, percent, plural, seconds } from '../lib/format.ts';
import { byLabel, total } from '../lib/prometheus.ts';
import { useStore } from '../lib/store.ts';
import { Icon, IconButton, KeyField, Segments, Sheet, ThemePicker } from '../ui/parts.tsx';
import { Chart } from './Chart.tsx';
import { HeatMap, LayerTable } from './HeatMap.tsx';
import { Latencies, Memory, Panel, Requests, Settings, Slots, Tile, WaitBar, windowSpan } from './Panels.tsx';
import { between, parts, type Moment } from './sample.ts';
import { openSheet, pollNow, setKey, setOptions, state, togglePause, watchServer, type State } from './state.ts';

const windows = [
  [60, '1 min'],
  [300, '5 min'],
  [900, '15 min'],
  [3600, '1 h'],
] as const;

function ServerForm({ onDone }: { onDone?: () => void }) {
  const s = useStore(state);
  const id = useId();
  const [text, setText] = useState(s.server?.url || (location.protocol === 'file:' ? 'http://127.0.0.1:8080' : location.origin));
  const [wrong, setWrong] = useState('');
  return (
    <form
      class="field"
      onSubmit={(event) => {
        event.preventDefault();
        const trouble = watchServer(text);
        setWrong(trouble);
        if (!trouble) onDone?.();
      }}
    >
      <label for={id}>Server</label>
      <div class="row">
        <input id={id} class="input" value={text} spellcheck={false} inputMode="url" aria-invalid={wrong ? true : undefined} aria-describedby={`${id}-hint`} onInput={(event) => setText(event.currentTarget.value)} />
        <button class="button">Watch</button>
      </div>
      <small id={`${id}-hint`}>{wrong || 'Another origin than this page’s must be allowed by the server: --cors-origin.'}</small>
    </form>
  );
}

const intervals = [
  [0.5, '0.5 s'],
  [1, '1 s'],
  [2, '2 s'],
  [5, '5 s'],
] as const;

function SettingsSheet() {
  const s = useStore(state);
  return (
    <Sheet title="Settings" onClose={() => openSheet(false)}>
      <ServerForm onDone={() => openSheet(false)} />
      {s.server && <KeyField value={s.server.key} remember={s.remember} focus={s.trouble?.kind === 'key'} trouble={s.trouble?.kind === 'key' ? s.trouble.message : ''} onChange={setKey} />}
      <div class="field">
        <span>Asked every</span>
        <Segments label="Asked every" value={s.interval} options={intervals} onPick={(interval) => setOptions({ interval })} />
      </div>
      <div class="field">
        <span>Theme</span>
        <ThemePicker />
      </div>
    </Sheet>
  );
}

function Header({ s }: { s: State }) {
  const info = s.history.latest?.metrics.get('moetier:experts_info')?.[0]?.labels;
  const facts = [
    s.props?.model_alias,
    info?.['mode'] && `experts ${info['mode']}`,
    info?.['policy'] && info['mode'] === 'stream' && `policy ${info['policy']}`,
    info?.['mode'] === 'stream' && info['io'],
    s.props?.build_info,
  ].filter(Boolean);
  return (
    <header class="top">
      <div class="grow">
        <h1 class="row">
          Monitor <span class={`live-dot ${s.trouble ? 'bad' : s.paused ? 'idle' : s.history.samples.length > 0 ? 'ok' : 'idle'}`} aria-hidden="true" />
          {s.server?.url && <span class="muted small plain-weight">{s.server.url}</span>}
        </h1>
        <div class="muted small" title={s.props?.model_path}>
          {facts.join(' · ') || (s.server ? 'Asking the server' : 'No server')}
        </div>
      </div>
      <div class="row wrap controls">
        <Segments label="Time shown" value={s.window} options={windows} onPick={(window) => setOptions({ window })} />
        <button type="button" class="button bare" aria-label={s.paused ? 'Resume' : 'Pause'} onClick={togglePause}>
          <Icon name={s.paused ? 'play' : 'pause'} />
          <span class="only-wide">{s.paused ? 'Resume' : 'Pause'}</span>
        </button>
        {!s.server?.url && s.server && (
          <a class="button bare" href="/" aria-label="Chat">
            <Icon name="chat" />
            <span class="only-wide">Chat</span>
          </a>
        )}
        <IconButton icon="gear" label="Settings" onClick={() => openSheet(true)} />
      </div>
    </header>
  );
}

function Tiles({ s, sample }: { s: State; sample: Moment }) {
  const m = sample.metrics;
  const recent = windowSpan(s.history, Math.max(5, 3 * s.interval));
  const whole = windowSpan(s.history, s.window);
  const busy = total(m, 'llamacpp:requests_processing') ?? sample.slots.filter((slot) => slot.busy).length;
  const queued = total(m, 'llamacpp:requests_deferred') ?? 0;
  const all = sample.hits / (sample.hits + sample.misses);
  const held = byLabel(m, 'moetier:memory_bytes', 'for').get('expert_cache') ?? 0;
  const token = whole && whole.rows > 0 ? parts.reduce((sum, p) => sum + whole.spent[p.key], 0) / whole.rows : NaN;
  return (
    <div class="tiles">
      <Tile label="Decode" value={`${number(recent?.decode ?? NaN)} tok/s`} note={`${number(whole?.decode ?? NaN)} in the time shown`} />
      <Tile label="Prompt" value={`${number(recent?.prompt ?? NaN)} tok/s`} note={`${number(whole?.prompt ?? NaN)} in the time shown`} />
      <Tile label="Hit ratio" value={percent(recent && !Number.isNaN(recent.hit) ? recent.hit : NaN)} note={Number.isNaN(all) ? 'nothing picked yet' : `${percent(all)} since the start`} />
      <Tile label="Read" value={`${bytes(recent?.read ?? NaN)}/s`} note={`${bytes(sample.readBytes)} since the start`} />
      <Tile label="A token takes" value={seconds(token)} note="on average" />
      <Tile label="Requests" value={`${busy} of ${sample.slots.length || (total(m, 'moetier:slots') ?? 0)}`} note={queued > 0 ? `${queued} in the queue` : 'nobody waits'} />
      <Tile label="Memory" value={bytes(total(m, 'moetier:process_resident_bytes') ?? NaN)} note={held > 0 ? `${bytes(held)} expert cache` : undefined} />
    </div>
  );
}

/** The window as series: one point per step, none where there is a gap. */
function series(s: State, window: number, n: number) {
  const times: number[] = [];
  const spans: (ReturnType<typeof between> | null)[] = [];
  for (const step of s.history.steps(window, n)) {
    if (step) {
      const span = between(step[0], step[1]);
      times.push(span.end);
      spans.push(span);
    } else if (times.length > 0) {
      times.push(times.at(-1)! + 0.001);
      spans.push(null);
    }
  }
  return { times, spans };
}

function Charts({ s, sample }: { s: State; sample: Moment }) {
  // As long as less is known than is to be shown, what is known fills the room.
  const known = sample.time - (s.history.samples[0]?.time ?? sample.time);
  const shown = Math.min(s.window, [30, 60, 120, 300, 600, 900, 1800].find((n) => n >= known) ?? s.window);
  const fine = series(s, shown, 240);
  const coarse = series(s, shown, 48);
  const shared = { times: fine.times, window: shown, end: sample.time };
  const line = (of: (span: ReturnType<typeof between>) => number) =>
    fine.spans.map((span) => {
      const value = span ? of(span) : NaN;
      return Number.isNaN(value) ? null : value;
    });
  const counted = !Number.isNaN(sample.hits + sample.misses);
  const whole = windowSpan(s.history, s.window);
  return (
    <>
      <Panel title="Decode">
        <Chart {...shared} title="Tokens written per second over time" format={number} lines={[{ label: 'tok/s', colour: '--c1', values: line((p) => p.decode) }]} />
      </Panel>
      <Panel title="Prompt">
        <Chart {...shared} title="Prompt tokens per second over time" format={number} lines={[{ label: 'tok/s', colour: '--c3', values: line((p) => p.prompt) }]} />
      </Panel>
      <Panel title="Hit ratio">
        {counted ? (
          <Chart {...shared} title="Share of hits over time" format={percent} max={1} lines={[{ label: 'of the picked experts were held', colour: '--c1', values: line((p) => p.hit) }]} />
        ) : (
          <p class="muted small">This server counts no hits: its experts are in no cache of its own.</p>
        )}
      </Panel>
      <Panel title="Read rate">
        <Chart {...shared} title="Bytes read per second over time" format={(v) => `${bytes(v)}/s`} binary lines={[{ label: 'from the tier below', colour: '--c2', values: line((p) => (Number.isNaN(p.read) ? 0 : p.read)) }]} />
      </Panel>
      <Panel title="Where a token’s time goes" wide note={whole && whole.rows > 0 ? `${plural(whole.rows, 'token')} computed` : ''}>
        <div class="split">
          <Chart
            title="Time per token over time, by what it was spent on"
            times={coarse.times}
            window={shown}
            end={sample.time}
            format={seconds}
            stacked
            height={230}
            lines={parts.map((p) => ({
              label: p.label,
              hint: p.hint,
              colour: p.colour,
              values: coarse.spans.map((span) => (span && span.rows > 0 ? span.spent[p.key] / span.rows : null)),
            }))}
          />
          <div>{whole && <WaitBar span={whole} />}</div>
        </div>
      </Panel>
      {sample.layers.ids.length > 0 && (
        <Panel title={sample.layers.hits.length > 0 ? 'Hits by layer' : 'Reads by layer'} wide>
          <HeatMap history={s.history} window={shown} sample={sample} />
          <LayerTable sample={sample} />
        </Panel>
      )}
      <Panel title="Slots" wide>
        <Slots sample={sample} history={s.history} />
      </Panel>
      <Panel title="Memory">
        <Memory sample={sample} />
      </Panel>
      <div class="column">
        <Panel title="Requests">
          <Requests sample={sample} />
        </Panel>
        <Panel title="Latencies" note="in the time shown">
          <Latencies history={s.history} window={s.window} />
        </Panel>
      </div>
    </>
  );
}

function Trouble({ s }: { s: State }) {
  if (!s.trouble) return null;
  return (
    <div class="notice bad row wrap" role="alert">
      <span class="grow">{s.trouble.message}</span>
      {s.trouble.kind === 'key' && (
        <button type="button" class="button little" onClick={() => openSheet(true)}>
          Enter a key
        </button>
      )}
      {s.server && (
        <button type="button" class="button little" onClick={pollNow}>
          Try again
        </button>
      )}
    </div>
  );
}

export function App() {
  const s = useStore(state);
  const sample = s.history.latest;
  useEffect(() => {
    pollNow();
  }, []);
  return (
    <>
      <Header s={s} />
      <main class="page">
        <Trouble s={s} />
        {!s.server && (
          <Panel title="Which server?" wide>
            <ServerForm />
          </Panel>
        )}
        {sample && <Tiles s={s} sample={sample} />}
        {s.restarts > 0 && <div class="notice">The server was started anew while this page watched; its counters began at zero.</div>}
        {sample && (
          <div class="panels">
            <Charts s={s} sample={sample} />
          </div>
        )}
        {s.props?.settings && <Settings settings={s.props.settings} />}
      </main>
      {s.sheet && <SettingsSheet />}
    </>
  );
}
