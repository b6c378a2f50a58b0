// What the pages are made of, without a browser. The sources are bundled for node as they are.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createRequire } from 'node:module';

const web = join(import.meta.dirname, '..', '..', 'web');
const { buildSync } = createRequire(join(web, 'package.json'))('esbuild');
const out = mkdtempSync(join(tmpdir(), 'moetier-pages-'));
after(() => rmSync(out, { recursive: true }));

async function load(source) {
  const outfile = join(out, source.replace(/\W/g, '_') + '.mjs');
  buildSync({ absWorkingDir: web, entryPoints: [`src/${source}`], bundle: true, format: 'esm', platform: 'node', outfile, logLevel: 'error' });
  return import(outfile);
}

const { parseMetrics, total, byLabel, buckets, quantile, minus } = await load('lib/prometheus.ts');
const { EventReader } = await load('lib/sse.ts');
const { bytes, seconds, percent, number } = await load('lib/format.ts');
const { serverUrl, refusal } = await load('lib/server.ts');
const tree = await load('chat/tree.ts');
const { AnswerBuilder } = await load('chat/stream.ts');
const { History } = await load('monitor/history.ts');
const { readSlots } = await load('monitor/sample.ts');

test('the Prometheus text format', () => {
  const m = parseMetrics(
    '# HELP a What\n# TYPE a counter\na 5\nb{x="1",y="a\\"b\\\\c\\nd}"} 2.5e3\nb{x="2",y=""} +Inf 1700000000\nnot a line\nc NaN\n' +
    'h_bucket{le="0.1"} 2\nh_bucket{le="1"} 8\nh_bucket{le="+Inf"} 10\nh_sum 5\nh_count 10\n');
  assert.equal(total(m, 'a'), 5);
  assert.deepEqual(m.get('b')[0], { labels: { x: '1', y: 'a"b\\c\nd}' }, value: 2500 });
  assert.equal(m.get('b')[1].value, Infinity);
  assert.equal(total(m, 'absent'), undefined);
  assert.ok(Number.isNaN(total(m, 'c')));
  assert.deepEqual([...byLabel(m, 'b', 'x')], [['1', 2500], ['2', Infinity]]);
  const h = buckets(m, 'h');
  assert.equal(quantile(h, 0.5), 0.1 + 0.9 * 0.5);
  assert.equal(quantile(h, 0.1), 0.05);
  assert.equal(quantile(h, 0.99), 1, 'beyond the last bound nothing is known but that');
  assert.ok(Number.isNaN(quantile(minus(h, h), 0.5)));
});

test('server-sent events, cut anywhere', () => {
  const text = ': keep-alive\n\ndata: {"a":"é"}\r\n\r\nevent: x\ndata: one\ndata:two\n\ndata: [DONE]\n\n';
  const all = new TextEncoder().encode(text);
  for (let size = 1; size < all.length; size += 1) {
    const reader = new EventReader();
    const got = [];
    for (let i = 0; i < all.length; i += size) got.push(...reader.take(all.slice(i, i + size)));
    assert.deepEqual(got, ['{"a":"é"}', 'one\ntwo', '[DONE]'], `in pieces of ${size}`);
  }
});

test('numbers as people read them', () => {
  assert.deepEqual([0, 512, 1536, 8 * 2 ** 30, 123.4 * 2 ** 20, NaN].map(bytes), ['0 B', '512 B', '1.50 KiB', '8.00 GiB', '123 MiB', '–']);
  assert.deepEqual([0, 0.00008, 0.0034, 0.25, 2.44, 59, 200, 7500].map(seconds), ['0 ms', '80 µs', '3.4 ms', '250 ms', '2.4 s', '59 s', '3 min 20 s', '2 h 5 min']);
  assert.deepEqual([0, 0.5, 1, 0.9999, 0.0001].map(percent), ['0 %', '50.0 %', '100 %', '100 %', '0 %']);
  assert.deepEqual([38.24, 1234.5, 0.123, 7].map(number), ['38.2', '1,235', '0.12', '7']);
});

test('addresses of servers', () => {
  assert.equal(serverUrl('127.0.0.1:8080'), 'http://127.0.0.1:8080');
  assert.equal(serverUrl(' https://example.org/llm/ '), 'https://example.org/llm');
  for (const wrong of ['', 'javascript:alert(1)', 'ftp://example.org', 'http://', 'a b']) assert.equal(serverUrl(wrong), null, wrong);
});

test('refusals are told as the server words them', () => {
  assert.equal(refusal(429, '{"error":{"message":"the queue is full"}}', '3').message, 'The queue is full. It says to try again in 3 s.');
  assert.equal(refusal(401, '', null).kind, 'key');
  assert.equal(refusal(502, '<html>', null).message, 'The server answered with status 502.');
});

test('a conversation is a tree', () => {
  const c = tree.newConversation('Be brief.', 1000);
  const question = tree.add(c, { parent: null, role: 'user', content: '# A question\nand more' }, 1000);
  const first = tree.add(c, { parent: question.id, role: 'assistant', content: 'one' }, 1000);
  const second = tree.add(c, { parent: question.id, role: 'assistant', content: 'two' }, 1000);
  assert.equal(c.title, 'A question');
  assert.deepEqual(tree.path(c).map((m) => m.content), ['# A question\nand more', 'two']);
  tree.choose(c, first);
  const calls = [{ id: 'c1', name: 'f', arguments: '{}' }, { id: 'c2', name: 'g', arguments: '{}' }];
  const next = tree.add(c, { parent: first.id, role: 'assistant', content: '', calls });
  tree.add(c, { parent: next.id, role: 'tool', content: 'r', callId: 'c1' });
  assert.deepEqual(tree.openCalls(tree.path(c)).map((k) => k.id), ['c2']);
  assert.deepEqual(tree.wireMessages(c, tree.path(c)).map((m) => m.role), ['system', 'user', 'assistant', 'assistant', 'tool']);
  const back = tree.imported(JSON.stringify(c));
  assert.notEqual(back.id, c.id);
  assert.deepEqual(tree.path(back).map((m) => m.content), tree.path(c).map((m) => m.content));
  tree.remove(c, first);
  assert.deepEqual(tree.path(c).map((m) => m.id), [question.id, second.id]);
  for (const wrong of ['[', 'null', '{}', '{"messages":{"a":{"role":"root","content":""}}}', '{"messages":{"a":null}}']) {
    assert.throws(() => tree.imported(wrong), /^Error: The file/, wrong);
  }
  const circle = { messages: { a: { parent: 'b', role: 'user', content: '' }, b: { parent: 'a', role: 'user', content: '' } } };
  assert.deepEqual(tree.path(tree.imported(JSON.stringify(circle))), []);
});

test('an answer is put together from its chunks', () => {
  const message = { id: 'm', parent: null, role: 'assistant', content: '', created: 0 };
  let now = 1000;
  const builder = new AnswerBuilder(message, 0, () => now);
  const delta = (d, rest = {}) => builder.take(JSON.stringify({ choices: [{ index: 0, delta: d, finish_reason: null }], ...rest }));
  builder.take('{"choices":[],"prompt_progress":{"total":10,"cache":0,"processed":4}}');
  assert.deepEqual(builder.progress.prompt, { done: 4, total: 10 });
  delta({ role: 'assistant', content: '' });
  assert.equal(builder.progress.began, 0, 'an empty piece is no beginning');
  delta({ reasoning_content: 'Hm' });
  now = 3000;
  delta({ content: 'He' });
  delta({ content: 'llo' });
  delta({ tool_calls: [{ index: 1, id: 'b', function: { name: 'g', arguments: '' } }] });
  delta({ tool_calls: [{ index: 1, function: { arguments: '{"a":' } }] });
  delta({ tool_calls: [{ index: 1, function: { arguments: '1}' } }] });
  builder.take('{"choices":[{"delta":{},"finish_reason":"tool_calls"}],"timings":{"prompt_n":7,"cache_n":3,"predicted_n":9,"prompt_per_second":100,"predicted_per_second":20}}');
  builder.take('{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":3}}}');
  builder.take('[DONE]');
  assert.ok(builder.ended);
  assert.equal(message.content, 'Hello');
  assert.equal(message.reasoning, 'Hm');
  assert.equal(message.thought, 2);
  assert.equal(message.finish, 'tool_calls');
  assert.deepEqual(message.calls[1], { id: 'b', name: 'g', arguments: '{"a":1}' });
  assert.deepEqual(message.stats, { promptTokens: 10, cachedTokens: 3, tokens: 9, promptSpeed: 100, speed: 20, first: 1 });
  assert.throws(() => builder.take('{"error":{"message":"a read failed"}}'), /A read failed\./);
  assert.throws(() => builder.take('{'), /not JSON/);
});

const metrics = (o) => parseMetrics(
  `llamacpp:prompt_tokens_total ${o.prompt}\nllamacpp:tokens_predicted_total ${o.decoded}\nllamacpp:n_decode_total ${o.steps ?? o.rows}\n` +
  `moetier:batch_rows_total ${o.rows}\nllamacpp:moe_cache_hits_total ${o.hits}\nllamacpp:moe_cache_misses_total ${o.misses}\n` +
  `moetier:tier_read_bytes_total{tier="host"} ${o.bytes}\nmoetier:compute_seconds_total 4\nmoetier:expert_compute_seconds_total 3\n` +
  `moetier:expert_wait_seconds_total ${o.wait ?? 2}\nmoetier:tier_read_wait_seconds_total{tier="host"} 1\nmoetier:tier_manage_seconds_total{tier="host"} 0.5\n` +
  `moetier:batch_seconds_sum 7\nllamacpp:moe_cache_layer_hits_total{layer="3"} ${o.hits}\nllamacpp:moe_cache_layer_misses_total{layer="3"} ${o.misses}\n`);
const slot = (decoded, done) => readSlots([{ id: 0, id_task: 1, is_processing: true, state: 'generating', n_prompt: 100, n_prompt_done: done, n_prompt_cached: 20, next_token: { n_decoded: decoded } }]);

test('rates count what slots have done so far, and no token twice', () => {
  const h = new History();
  h.add(metrics({ prompt: 0, decoded: 0, rows: 0, hits: 0, misses: 0, bytes: 0 }), slot(0, 20), 100, 10);
  h.add(metrics({ prompt: 0, decoded: 0, rows: 100, hits: 30, misses: 10, bytes: 4000 }), slot(20, 100), 102, 10);
  assert.equal(h.spans[0].decode, 10);
  assert.equal(h.spans[0].prompt, 40);
  assert.equal(h.spans[0].hit, 0.75);
  assert.equal(h.spans[0].read, 2000);
  // It ended between the two answers: /metrics has not got it yet, /slots no more.
  h.add(metrics({ prompt: 0, decoded: 0, rows: 110, hits: 30, misses: 10, bytes: 4000 }), readSlots([{ id: 0, is_processing: false }]), 103, 10);
  assert.equal(h.spans[1].decode, 0);
  assert.ok(Number.isNaN(h.spans[1].hit), 'no lookup is no ratio');
  h.add(metrics({ prompt: 80, decoded: 30, rows: 110, hits: 30, misses: 10, bytes: 4000 }), [], 104, 10);
  assert.equal(h.spans[2].decode, 10);
  assert.equal(h.spans[2].prompt, 0);
});

test('where the time went, restarts and gaps', () => {
  const h = new History();
  h.add(metrics({ prompt: 0, decoded: 0, rows: 50, hits: 9, misses: 1, bytes: 0 }), [], 100, 10);
  assert.deepEqual(h.latest.spent, { experts: 3, other: 1, read: 1, manage: 0.5, ask: 0.5, sampling: 1 });
  assert.equal(h.add(metrics({ prompt: 0, decoded: 0, rows: 10, hits: 0, misses: 0, bytes: 0 }), [], 101, 10), true);
  assert.equal(h.spans[0], null);
  h.add(metrics({ prompt: 0, decoded: 5, rows: 20, hits: 0, misses: 0, bytes: 0 }), [], 102, 10);
  h.add(metrics({ prompt: 0, decoded: 9, rows: 30, hits: 0, misses: 0, bytes: 0 }), [], 200, 10);
  assert.equal(h.spans[2], null, 'the page slept');
  assert.equal(h.steps(300, 100).filter((s) => s === null).length, 2);
  for (let t = 201; t < 8000; t += 10) h.add(metrics({ prompt: 0, decoded: 9, rows: 30, hits: 0, misses: 0, bytes: 0 }), [], t, 20);
  assert.ok(h.samples.length <= 363 && h.spans.length === h.samples.length - 1, 'an hour is kept');
  assert.ok(h.steps(3600, 120).length <= 122);
});
