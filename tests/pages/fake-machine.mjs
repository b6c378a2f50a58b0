// A machine that only pretends: slots, counters and a cache that warms up, told in the formats of /metrics, /slots and /props.

const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const topK = 8;
const entryBytes = 6_684_672;

class Histogram {
  counts = new Array(bounds.length + 1).fill(0);
  sum = 0;
  observe(value) {
    const at = bounds.findIndex((b) => value <= b);
    this.counts[at < 0 ? bounds.length : at] += 1;
    this.sum += value;
  }
}

/** The same numbers every time. */
function randomFrom(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

export class Machine {
  constructor({ layers = 24, slots = 4, cache = true, busy = false, mode = 'stream' } = {}) {
    this.random = randomFrom(7);
    this.layers = Array.from({ length: layers }, (_, i) => ({ il: i, hits: 0, profile: 0, misses: 0, reads: 0, bytes: 0 }));
    this.cache = cache;
    this.mode = mode;
    this.busy = busy;
    this.list = Array.from({ length: slots }, (_, id) => ({ id, task: 0, busy: false, prompt: 0, done: 0, cached: 0, decoded: 0, max: 0, since: 0 }));
    this.histograms = Object.fromEntries(['queue', 'first_token', 'token_gap', 'request', 'batch'].map((n) => [n, new Histogram()]));
    this.restart();
    this.last = Date.now();
  }

  restart() {
    for (const layer of this.layers) Object.assign(layer, { hits: 0, profile: 0, misses: 0, reads: 0, bytes: 0 });
    this.n = { prompt: 0, promptSeconds: 0, sampled: 0, decodeSeconds: 0, steps: 0, rows: 0, refused: 0, cachedTokens: 0, tasks: 0, tokens: 0 };
    this.time = { experts: 0, other: 0, read: 0, manage: 0, ask: 0, rest: 0 };
    this.finished = { end_of_generation: 0, stop_text: 0, length: 0, context_full: 0, timed_out: 0, cancelled: 0, stalled: 0, shutdown: 0, failed: 0 };
    this.queued = 0;
  }

  /** A batch of `rows` of which `generating` continue an answer. */
  work(rows, generating) {
    const warm = this.n.rows / (this.n.rows + 400);
    let missed = 0;
    for (const layer of this.layers) {
      const chance = 0.45 + 0.5 * warm - 0.25 * Math.abs(Math.sin(layer.il * 1.7)) * (1 - 0.5 * warm);
      for (let i = 0; i < topK; i += 1) {
        if (this.random() < chance) {
          layer.hits += 1;
          if (this.random() < 0.4) layer.profile += 1;
        } else {
          layer.misses += 1;
          layer.reads += 1;
          layer.bytes += entryBytes;
          missed += 1;
        }
      }
    }
    const parts = { experts: 0.009 * rows ** 0.7, other: 0.006 * rows ** 0.5, read: missed * 0.00028, manage: 0.0004, ask: 0.0002, rest: 0.0012 };
    for (const [name, value] of Object.entries(parts)) this.time[name] += value;
    const seconds = Object.values(parts).reduce((a, b) => a + b);
    this.histograms.batch.observe(seconds);
    for (let i = 0; i < generating; i += 1) this.histograms.token_gap.observe(seconds * (0.8 + 0.4 * this.random()));
    this.n.rows += rows;
    this.n.steps += 1;
  }

  begin(body) {
    const slot = this.list.find((s) => !s.busy) ?? this.list[0];
    this.n.tasks += 1;
    const prompt = 20 + Math.round(JSON.stringify(body.messages ?? '').length / 4);
    Object.assign(slot, { task: this.n.tasks, busy: true, prompt, done: prompt, cached: 8, decoded: 0, max: body.max_tokens ?? -1, since: Date.now() });
    this.work(prompt - 8, 0);
    this.histograms.queue.observe(0.002);
    this.histograms.first_token.observe(0.21);
    return slot.task;
  }

  token(task) {
    const slot = this.list.find((s) => s.busy && s.task === task);
    if (!slot) return;
    slot.decoded += 1;
    this.work(1, 1);
  }

  end(task, how = 'end_of_generation') {
    const slot = this.list.find((s) => s.busy && s.task === task);
    if (!slot) return;
    slot.busy = false;
    const seconds = (Date.now() - slot.since) / 1000;
    this.n.prompt += slot.done - slot.cached;
    this.n.promptSeconds += 0.2;
    this.n.cachedTokens += slot.cached;
    this.n.sampled += slot.decoded;
    this.n.decodeSeconds += seconds;
    this.finished[how] += 1;
    this.histograms.request.observe(seconds);
  }

  /** With `busy`, requests come and go by themselves. */
  pretend() {
    const now = Date.now();
    const ticks = Math.min(Math.floor((now - this.last) / 26), 400);
    if (!this.busy || ticks === 0) return;
    this.last = now;
    for (let i = 0; i < ticks; i += 1) {
      const writing = this.list.filter((s) => s.busy && s.done >= s.prompt);
      for (const slot of writing) slot.decoded += 1;
      const reading = this.list.find((s) => s.busy && s.done < s.prompt);
      const slice = reading ? Math.min(48, reading.prompt - reading.done) : 0;
      if (reading) reading.done += slice;
      if (writing.length + slice > 0) this.work(writing.length + slice, writing.length);
      for (const slot of writing) if (slot.decoded >= slot.max) this.end(slot.task, slot.task % 5 === 0 ? 'length' : 'end_of_generation');
      if (this.random() < 0.012) this.queued = Math.min(this.queued + 1, 6);
      const free = this.list.find((s) => !s.busy);
      if (free && (this.queued > 0 || this.random() < 0.004)) {
        this.queued = Math.max(this.queued - 1, 0);
        this.n.tasks += 1;
        const prompt = 100 + Math.floor(this.random() * 3000);
        Object.assign(free, { task: this.n.tasks, busy: true, prompt, done: 64, cached: 64, decoded: 0, max: 60 + Math.floor(this.random() * 400), since: now });
        this.histograms.queue.observe(this.random() * 2);
        this.histograms.first_token.observe(prompt / 800);
      }
    }
  }

  params(max) {
    return {
      seed: 0, temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_last_n: 64, repeat_penalty: 1, presence_penalty: 0, frequency_penalty: 0,
      stop: [], max_tokens: max, n_predict: max, n_probs: 0, ignore_eos: false, stream: true, logit_bias: [], grammar: '',
    };
  }

  props() {
    return {
      default_generation_settings: { n_ctx: 32768, params: this.params(-1) }, total_slots: this.list.length, model_alias: 'tales-30b-a3b',
      model_path: '/models/tales-30b-a3b-q4_k_m.gguf', modalities: { vision: false, audio: false }, chat_template: '{{ messages }}', chat_format: 'plain',
      bos_token: '<s>', eos_token: '</s>', build_info: 'moetier 0.1.0', is_sleeping: false,
      settings: {
        experts: { value: this.mode, source: 'auto' }, 'cache-mb': { value: 9000, source: 'auto' }, policy: { value: 'default', source: 'default' },
        parallel: { value: this.list.length, source: 'flag' }, threads: { value: 8, source: 'auto' }, ctx: { value: 32768, source: 'auto' },
        'api-key': { value: '(hidden)', source: 'environment' },
      },
    };
  }

  slots() {
    this.pretend();
    return this.list.map((s) => ({
      id: s.id, id_task: s.task === 0 ? -1 : s.task, n_ctx: 32768, speculative: false, is_processing: s.busy,
      state: !s.busy ? 'idle' : s.done < s.prompt ? 'prompt' : 'generating', n_held: s.done + s.decoded, n_prompt: s.prompt, n_prompt_done: s.done,
      n_prompt_cached: s.cached, seconds: s.busy ? (Date.now() - s.since) / 1000 : 0, params: this.params(s.max),
      next_token: { has_next_token: s.busy, n_remain: s.max < 0 ? -1 : Math.max(s.max - s.decoded, 0), n_decoded: s.decoded },
    }));
  }

  metrics() {
    this.pretend();
    const out = [];
    const family = (name, type, help, samples) => {
      out.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const [labels, value, suffix = ''] of samples) out.push(`${name}${suffix}${labels ? `{${labels}}` : ''} ${value}`);
    };
    const one = (name, type, help, value, labels = '') => family(name, type, help, [[labels, value]]);
    const sum = (field) => this.layers.reduce((n, layer) => n + layer[field], 0);
    const { n, time } = this;
    const busy = this.list.filter((s) => s.busy).length;
    one('llamacpp:prompt_tokens_total', 'counter', 'Prompt tokens computed.', n.prompt);
    one('llamacpp:prompt_seconds_total', 'counter', 'Seconds that prompts took.', n.promptSeconds);
    one('llamacpp:tokens_predicted_total', 'counter', 'Tokens generated.', n.sampled);
    one('llamacpp:tokens_predicted_seconds_total', 'counter', 'Seconds that generating took.', n.decodeSeconds);
    one('llamacpp:n_decode_total', 'counter', 'Batches computed.', n.steps);
    one('llamacpp:requests_processing', 'gauge', 'Requests that have a slot.', busy);
    one('llamacpp:requests_deferred', 'gauge', 'Requests that wait for a slot.', this.queued);
    if (this.cache) {
      one('llamacpp:moe_cache_hits_total', 'counter', 'Selected experts that the cache held.', sum('hits'));
      one('llamacpp:moe_cache_hits_profile_total', 'counter', 'Of them, put there by the profile.', sum('profile'));
      one('llamacpp:moe_cache_misses_total', 'counter', 'Selected experts that the cache did not hold.', sum('misses'));
      one('llamacpp:moe_cache_upload_bytes_total', 'counter', 'Bytes read into the cache.', sum('bytes'));
      one('llamacpp:moe_cache_hit_ratio', 'gauge', 'Hits / (hits + misses) since the start.', sum('hits') / Math.max(sum('hits') + sum('misses'), 1));
      one('llamacpp:moe_cache_slots', 'gauge', 'Slots for experts.', 1411);
      one('llamacpp:moe_cache_prefilled', 'gauge', 'Slots that the profile filled at load.', 800);
      one('llamacpp:moe_cache_bytes', 'gauge', 'Memory of the cache in bytes.', 9437184000);
      const layered = (name, field) => family(name, 'counter', 'Of a layer.', this.layers.map((l) => [`layer="${l.il}"`, l[field]]));
      layered('llamacpp:moe_cache_layer_hits_total', 'hits');
      layered('llamacpp:moe_cache_layer_hits_profile_total', 'profile');
      layered('llamacpp:moe_cache_layer_misses_total', 'misses');
    }
    family('moetier:requests_total', 'counter', 'Requests that ended, by how.', Object.entries(this.finished).map(([k, v]) => [`finish="${k}"`, v]));
    one('moetier:requests_refused_total', 'counter', 'Requests refused because the queue was full.', n.refused);
    one('moetier:cached_prompt_tokens_total', 'counter', 'Prompt tokens that a kept sequence held already.', n.cachedTokens);
    one('moetier:slots', 'gauge', 'Requests that can be served at once.', this.list.length);
    one('moetier:slot_context_tokens', 'gauge', 'Positions of a slot.', 32768);
    one('moetier:kept_sequences', 'gauge', 'Finished sequences kept for their prefixes.', 3);
    for (const [name, h] of Object.entries(this.histograms)) {
      let below = 0;
      const lines = bounds.map((b, i) => [`le="${b}"`, (below += h.counts[i]), '_bucket']);
      const all = below + h.counts[bounds.length];
      family(`moetier:${name}_seconds`, 'histogram', 'Seconds.', [...lines, ['le="+Inf"', all, '_bucket'], ['', h.sum, '_sum'], ['', all, '_count']]);
    }
    one('moetier:batch_rows_total', 'counter', 'Rows computed.', n.rows);
    one('moetier:compute_seconds_total', 'counter', 'In batches, outside of waits for experts.', time.experts + time.other);
    one('moetier:expert_wait_seconds_total', 'counter', 'In batches, asking for experts and waiting for them.', time.read + time.manage + time.ask);
    one('moetier:expert_compute_seconds_total', 'counter', 'In batches, computing experts.', time.experts);
    family('moetier:page_faults_total', 'counter', 'Page faults of the process.', [['kind="major"', 12], ['kind="minor"', 81234]]);
    one('moetier:process_resident_bytes', 'gauge', 'Memory of the process.', 12_300_000_000);
    family('moetier:memory_bytes', 'gauge', 'Memory by what it is for.', [
      ['for="dense_weights"', 1_720_000_000], ['for="expert_cache"', this.cache ? 9437184000 : 0], ['for="kv"', 402_000_000 + n.rows * 900], ['for="buffers"', 310_000_000],
    ]);
    one('moetier:kv_reserved_bytes', 'gauge', 'What the KV cache can grow to.', 3_221_225_472);
    family('moetier:experts_info', 'gauge', 'How experts are kept; always 1.', [[`mode="${this.mode}",policy="default",io="io_uring, direct, depth 16"`, 1]]);
    const host = 'tier="host"';
    one('moetier:tier_hits_total', 'counter', 'Experts of small batches that were in the tier.', sum('hits'), host);
    one('moetier:tier_misses_total', 'counter', 'Experts of small batches that were not.', sum('misses'), host);
    one('moetier:tier_reads_total', 'counter', 'Experts read from the tier below.', sum('reads'), host);
    one('moetier:tier_read_bytes_total', 'counter', 'Bytes read from the tier below.', sum('bytes'), host);
    one('moetier:tier_read_wait_seconds_total', 'counter', 'Blocked until a read came.', time.read, host);
    one('moetier:tier_manage_seconds_total', 'counter', 'Bookkeeping, submitting and reaping reads.', time.manage, host);
    one('moetier:tier_budget_bytes', 'gauge', 'What the tier may take.', this.cache ? 9_663_676_416 : 0, host);
    one('moetier:tier_bytes', 'gauge', 'What it has taken.', this.cache ? 9437184000 : 0, host);
    one('moetier:tier_transit_bytes', 'gauge', 'Of that, room for what is on its way.', this.cache ? 213_909_504 : 0, host);
    one('moetier:tier_slots', 'gauge', 'Homes for experts.', this.cache ? 1411 : 0, host);
    one('moetier:token_cycle_bytes', 'gauge', 'The most that one token can need.', topK * this.layers.length * entryBytes, host);
    family('moetier:layer_reads_total', 'counter', 'Experts of a layer read from the tier below.', this.layers.map((l) => [`layer="${l.il}"`, l.reads]));
    family('moetier:layer_read_bytes_total', 'counter', 'Bytes of them.', this.layers.map((l) => [`layer="${l.il}"`, l.bytes]));
    return out.join('\n') + '\n';
  }
}
