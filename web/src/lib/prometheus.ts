// Reads the Prometheus text format.

export interface Sample {
  labels: Record<string, string>;
  value: number;
}
export type Metrics = Map<string, Sample[]>;

const line = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$/;
const label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

function number(text: string): number {
  if (text === '+Inf' || text === 'Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}

/** Every sample by its name; comments and lines that are none are passed over. */
export function parseMetrics(text: string): Metrics {
  const out: Metrics = new Map();
  for (const raw of text.split('\n')) {
    if (raw === '' || raw.startsWith('#')) continue;
    const parts = line.exec(raw);
    if (!parts) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (parts[2] ?? '').matchAll(label)) {
      labels[name!] = value!.replace(/\\(.)/g, (_, c: string) => (c === 'n' ? '\n' : c));
    }
    const samples = out.get(parts[1]!);
    const sample = { labels, value: number(parts[3]!) };
    if (samples) samples.push(sample);
    else out.set(parts[1]!, [sample]);
  }
  return out;
}

/** A family's only value, or the sum of its values; undefined where it is absent. */
export function total(metrics: Metrics, name: string): number | undefined {
  const samples = metrics.get(name);
  return samples?.reduce((sum, sample) => sum + sample.value, 0);
}

/** A family by one of its labels. */
export function byLabel(metrics: Metrics, name: string, key: string): Map<string, number> {
  const out = new Map<string, number>();
  for (const sample of metrics.get(name) ?? []) {
    const value = sample.labels[key];
    if (value !== undefined) out.set(value, (out.get(value) ?? 0) + sample.value);
  }
  return out;
}

/** Cumulative counts of a histogram by upper bound, ascending; the last has none. */
export interface Buckets {
  bounds: number[];
  counts: number[];
}

export function buckets(metrics: Metrics, name: string): Buckets | undefined {
  const samples = metrics.get(`${name}_bucket`);
  if (!samples) return undefined;
  const pairs = samples.map((s) => [number(s.labels['le'] ?? '+Inf'), s.value] as const).sort((a, b) => a[0] - b[0]);
  return { bounds: pairs.map((p) => p[0]), counts: pairs.map((p) => p[1]) };
}

export function minus(after: Buckets, before: Buckets | undefined): Buckets {
  if (!before || before.counts.length !== after.counts.length) return after;
  const counts = after.counts.map((count, i) => count - before.counts[i]!);
  return counts.some((count) => count < 0) ? after : { bounds: after.bounds, counts };
}

/** The value below which a share `q` of the observations lies, straight lines within a bucket; NaN where there are none. */
export function quantile(histogram: Buckets, q: number): number {
  const all = histogram.counts[histogram.counts.length - 1] ?? 0;
  if (all <= 0) return NaN;
  const rank = q * all;
  const at = histogram.counts.findIndex((count) => count >= rank);
  const low = at === 0 ? 0 : histogram.bounds[at - 1]!;
  const high = histogram.bounds[at]!;
  if (!Number.isFinite(high)) return low;
  const below = at === 0 ? 0 : histogram.counts[at - 1]!;
  const inside = histogram.counts[at]! - below;
  return inside <= 0 ? high : low + ((high - low) * (rank - below)) / inside;
}
