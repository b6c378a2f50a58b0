// The samples of the last hour, and what is drawn of them.
import { between, makeSample, restarted, type Moment, type Sample, type Span } from './sample.ts';

const longest = 3600; // seconds that are kept

export class History {
  samples: Sample[] = [];
  latest: Moment | undefined;
  /** Of the last seconds, with their slots. */
  recent: Moment[] = [];
  /** One less than samples; null where the server was started anew in between, or the page slept. */
  spans: (Span | null)[] = [];

  /** True if the server was started anew since the sample before. */
  add(metrics: Moment['metrics'], slots: Moment['slots'], time: number, gap: number): boolean {
    const sample = makeSample(metrics, slots, time);
    const before = this.samples.at(-1);
    let anew = false;
    if (before) {
      anew = restarted(before, sample);
      if (!anew) {
        // A request that ended between the two answers is in neither; it is in the next.
        sample.prompt = Math.max(sample.prompt, before.prompt);
        sample.decoded = Math.max(sample.decoded, before.decoded);
      }
      this.spans.push(anew || time - before.time > gap ? null : between(before, sample));
    }
    this.latest = sample;
    this.recent = [...this.recent.filter((s) => !anew && s.time > time - 6), sample];
    const { metrics: _, slots: __, ...lasting } = sample;
    this.samples.push(lasting);
    while (this.samples.length > 2 && this.samples[0]!.time < time - longest) {
      this.samples.shift();
      this.spans.shift();
    }
    return anew;
  }

  clear(): void {
    this.samples = [];
    this.spans = [];
    this.recent = [];
    this.latest = undefined;
  }

  /** Index of the first sample of the last `seconds`, after the last gap if `whole`. */
  from(seconds: number, whole = false): number {
    const end = this.samples.at(-1)?.time ?? 0;
    let at = this.samples.findIndex((s) => s.time >= end - seconds - 0.001);
    if (at < 0) at = Math.max(this.samples.length - 1, 0);
    if (whole) {
      for (let i = this.spans.length - 1; i >= at; i -= 1) if (this.spans[i] === null) return i + 1;
    }
    return at;
  }

  /** The window in at most `n` steps: pairs of samples; null at a gap. */
  steps(seconds: number, n: number): ([Sample, Sample] | null)[] {
    const first = this.from(seconds);
    const end = this.samples.length - 1;
    if (end < 1) return [];
    // Edges lie on multiples of a fixed width, so that steps do not flicker as time goes on.
    const width = seconds / n;
    const out: ([Sample, Sample] | null)[] = [];
    let begin = first;
    for (let i = first; i < end; i += 1) {
      if (this.spans[i] === null) {
        if (i > begin) out.push([this.samples[begin]!, this.samples[i]!]);
        out.push(null);
        begin = i + 1;
        continue;
      }
      const edge = Math.floor(this.samples[i + 1]!.time / width) !== Math.floor(this.samples[begin]!.time / width);
      if (edge || i + 1 === end) {
        out.push([this.samples[begin]!, this.samples[i + 1]!]);
        begin = i + 1;
      }
    }
    return out;
  }
}
