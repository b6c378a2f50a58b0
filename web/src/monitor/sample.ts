// What a server tells at one moment, and what happened between two moments.
import { buckets, byLabel, total, type Buckets, type Metrics } from '../lib/prometheus.ts';

export interface Slot {
  id: number;
  task: number;
  state: string;
  busy: boolean;
  context: number;
  held: number;
  prompt: number;
  promptDone: number;
  promptCached: number;
  decoded: number;
  remaining: number;
  seconds: number;
}

interface RawSlot {
  id?: number;
  id_task?: number;
  n_ctx?: number;
  is_processing?: boolean;
  state?: string;
  n_held?: number;
  n_prompt?: number;
  n_prompt_done?: number;
  n_prompt_cached?: number;
  seconds?: number;
  next_token?: { n_remain?: number; n_decoded?: number } | { n_remain?: number; n_decoded?: number }[];
}

export function readSlots(json: unknown): Slot[] {
  if (!Array.isArray(json)) return [];
  return (json as RawSlot[]).map((s, i) => {
    const next = Array.isArray(s.next_token) ? s.next_token[0] : s.next_token;
    return {
      id: s.id ?? i,
      task: s.id_task ?? -1,
      busy: s.is_processing === true,
      state: s.state ?? (s.is_processing ? 'working' : 'idle'),
      context: s.n_ctx ?? 0,
      held: s.n_held ?? 0,
      prompt: s.n_prompt ?? 0,
      promptDone: s.n_prompt_done ?? 0,
      promptCached: s.n_prompt_cached ?? 0,
      decoded: next?.n_decoded ?? 0,
      remaining: next?.n_remain ?? -1,
      seconds: s.seconds ?? 0,
    };
  });
}

/** Where a batch's time goes, in the order of the bars. */
export const parts = [
  { key: 'experts', label: 'Experts', hint: 'computing experts', colour: '--c1' },
  { key: 'other', label: 'Attention and rest', hint: 'computing all else', colour: '--c3' },
  { key: 'read', label: 'Read wait', hint: 'blocked until a read came', colour: '--c2' },
  { key: 'manage', label: 'Management', hint: 'bookkeeping of the cache, submitting and reaping reads', colour: '--c4' },
  { key: 'ask', label: 'Other waits', hint: 'in the expert operation, outside of the two', colour: '--c5' },
  { key: 'sampling', label: 'Sampling', hint: 'choosing tokens, making text of them, sending', colour: '--c6' },
] as const;
export type PartKey = (typeof parts)[number]['key'];

/** Counters and gauges of one moment; NaN where the server has no such series. */
export interface Sample {
  time: number; // seconds since 1970
  prompt: number;
  decoded: number;
  rows: number;
  hits: number;
  misses: number;
  readBytes: number;
  spent: Record<PartKey, number>;
  layers: LayerCounts;
  latencies: Map<string, Buckets>;
  /** Counters whose fall means that the server was started anew. */
  marks: number[];
}

/** What is only needed of the newest. */
export interface Moment extends Sample {
  metrics: Metrics;
  slots: Slot[];
}

/** By layer, in the order of `ids`; hits and misses are empty where nobody counts them. */
export interface LayerCounts {
  ids: number[];
  hits: Float64Array;
  misses: Float64Array;
  bytes: Float64Array;
}

export const histograms = [
  ['moetier:queue_seconds', 'In the queue'],
  ['moetier:first_token_seconds', 'To the first token'],
  ['moetier:token_gap_seconds', 'Between tokens'],
  ['moetier:request_seconds', 'Whole request'],
] as const;

function layers(metrics: Metrics): LayerCounts {
  const read = (name: string) => new Map([...byLabel(metrics, name, 'layer')].map(([layer, value]) => [Number(layer), value]));
  const hits = read('llamacpp:moe_cache_layer_hits_total');
  const misses = read('llamacpp:moe_cache_layer_misses_total');
  const bytes = read('moetier:layer_read_bytes_total');
  const ids = [...new Set([...hits.keys(), ...bytes.keys()])].sort((a, b) => a - b);
  const list = (of: Map<number, number>) => Float64Array.from(of.size > 0 ? ids : [], (id) => of.get(id) ?? 0);
  return { ids, hits: list(hits), misses: list(misses), bytes: list(bytes) };
}

const falls = ['llamacpp:n_decode_total', 'moetier:batch_rows_total', 'llamacpp:tokens_predicted_total', 'llamacpp:moe_cache_hits_total'];

function spent(metrics: Metrics): Sample['spent'] {
  const value = (name: string) => total(metrics, name) ?? NaN;
  const or0 = (n: number) => (Number.isNaN(n) ? 0 : n);
  const compute = value('moetier:compute_seconds_total');
  const experts = or0(value('moetier:expert_compute_seconds_total'));
  const waits = or0(value('moetier:expert_wait_seconds_total'));
  const read = or0(value('moetier:tier_read_wait_seconds_total'));
  const manage = or0(value('moetier:tier_manage_seconds_total')) + or0(value('moetier:tier_advise_seconds_total'));
  const whole = value('moetier:batch_seconds_sum');
  return { experts, other: compute - experts, read, manage, ask: waits - read - manage, sampling: whole - compute - waits };
}

/** The two counters of tokens move when a request ends; what its slot has done so far is added. */
export function makeSample(metrics: Metrics, slots: Slot[], time: number): Moment {
  const value = (name: string) => total(metrics, name) ?? NaN;
  const active = slots.filter((s) => s.busy);
  const sum = (of: (s: Slot) => number) => active.reduce((n, s) => n + of(s), 0);
  const first = (...names: string[]) => names.map(value).find((n) => !Number.isNaN(n)) ?? NaN;
  return {
    time,
    prompt: value('llamacpp:prompt_tokens_total') + sum((s) => Math.max(s.promptDone - s.promptCached, 0)),
    decoded: value('llamacpp:tokens_predicted_total') + sum((s) => s.decoded),
    rows: value('moetier:batch_rows_total'),
    hits: first('llamacpp:moe_cache_hits_total', 'moetier:tier_hits_total'),
    misses: first('llamacpp:moe_cache_misses_total', 'moetier:tier_misses_total'),
    readBytes: first('moetier:tier_read_bytes_total', 'llamacpp:moe_cache_upload_bytes_total'),
    spent: spent(metrics),
    layers: layers(metrics),
    latencies: latencies(metrics),
    marks: falls.map((name) => total(metrics, name) ?? 0),
    metrics,
    slots,
  };
}

/** Counters never fall; where they did, the server was started anew. */
export function restarted(before: Sample, after: Sample): boolean {
  return after.marks.some((mark, i) => mark < before.marks[i]!);
}

/** What happened in a span of time. */
export interface Span {
  begin: number;
  end: number;
  prompt: number; // tokens per second
  decode: number;
  hit: number; // share; NaN where nothing was looked up
  read: number; // bytes per second
  rows: number; // computed in it
  /** Seconds spent, all rows together. */
  spent: Record<PartKey, number>;
}

const grown = (after: number, before: number) => Math.max(after - before, 0);

export function between(before: Sample, after: Sample): Span {
  const dt = Math.max(after.time - before.time, 1e-3);
  const hits = grown(after.hits, before.hits);
  const misses = grown(after.misses, before.misses);
  const spentIn = {} as Span['spent'];
  for (const { key } of parts) spentIn[key] = grown(after.spent[key], before.spent[key]);
  return {
    begin: before.time,
    end: after.time,
    prompt: grown(after.prompt, before.prompt) / dt,
    decode: grown(after.decoded, before.decoded) / dt,
    hit: hits + misses > 0 ? hits / (hits + misses) : NaN,
    read: grown(after.readBytes, before.readBytes) / dt,
    rows: grown(after.rows, before.rows),
    spent: spentIn,
  };
}

/** Of a layer: the share of hits, how many were looked up, and the bytes read. */
export interface LayerCell {
  hit: number;
  looked: number;
  bytes: number;
}
export function layerCells(before: Sample, after: Sample): LayerCell[] {
  const then = before.layers;
  const now = after.layers;
  return now.ids.map((_, i) => {
    const of = (what: 'hits' | 'misses' | 'bytes') => grown(now[what][i] ?? 0, then[what][i] ?? 0);
    const looked = of('hits') + of('misses');
    return { hit: looked > 0 ? of('hits') / looked : NaN, looked, bytes: of('bytes') };
  });
}

function latencies(metrics: Metrics): Map<string, Buckets> {
  const out = new Map<string, Buckets>();
  for (const [name] of histograms) {
    const found = buckets(metrics, name);
    if (found) out.set(name, found);
  }
  return out;
}
