// A stand-in for `moetier serve`: the pages, and answers in the server's own formats, without a model. What it says depends on
// the last message (see `answers`), its load and cache move as if a model were at work, and everything can be set by the tests.
// By itself: node fake-server.mjs [PORT]
import { createServer } from 'node:http';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Machine } from './fake-machine.mjs';

const dist = join(import.meta.dirname, '..', '..', 'web', 'dist');
const pageHeaders = {
  'Content-Security-Policy':
    "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; " +
    "img-src 'self' data:; connect-src *; frame-ancestors 'none'; base-uri 'none'",
  'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer', 'Cache-Control': 'no-cache',
};

const words = (text) => text.match(/\s*\S+|\s+$/g) ?? [];
export const markdownAnswer = readFileSync(join(import.meta.dirname, 'data', 'answer.md'), 'utf8');

/** By what the last message contains: reasoning, content and calls to say, and how it ends. */
const answers = [
  [/markdown/i, () => ({ content: words(markdownAnswer) })],
  [/think/i, () => ({
    reasoning: words('The question is about tiers. Memory is fast and small, the drive is slow and large. So the experts that are picked often belong in memory.'),
    content: words('Keep the **hot** experts in memory and read the others when they are picked.'),
  })],
  [/weather/i, (body) => (body.tools && body.messages.at(-1).role !== 'tool'
    ? { calls: [{ id: 'call_0123456789abcdef', name: 'weather', arguments: '{"city":"Lyon","days":2}' }] }
    : { content: words(`The tool said: ${body.messages.at(-1).content}`) })],
  [/forever/i, () => ({ content: words('tick '.repeat(4000)), pause: 20 })],
  [/whole context/i, () => ({ content: words('This answer fills the'), finish: 'length', full: true })],
  [/limit/i, () => ({ content: words('This answer ends at its'), finish: 'length' })],
  [/midway/i, () => ({ content: words('It began well and then'), error: 'the model file was cut short: layer 3 could not be read' })],
  [/cut/i, () => ({ content: words('It began well and then'), cut: true })],
  [/prompt/i, () => ({ content: words('A long prompt was read.'), progress: 12 })],
];

function answerFor(body) {
  const last = body.messages.at(-1);
  if (last.role === 'assistant') return { content: words(' limit, and goes on after it.') };
  const said = [...body.messages].reverse().find((m) => m.role === 'user')?.content ?? '';
  const made = answers.find(([pattern]) => pattern.test(said))?.[1](body);
  return made ?? { content: words(`You said: ${said}`) };
}

export class FakeServer {
  constructor(options = {}) {
    this.options = { key: '', cors: '', pause: 4, ...options };
    this.machine = new Machine(options.machine);
    /** Bodies of the chat requests, oldest first. */
    this.requests = [];
    this.aborted = 0;
    this.http = createServer((request, response) => void this.handle(request, response).catch(() => response.destroy()));
  }

  async start(port = 0) {
    await new Promise((done) => this.http.listen(port, '127.0.0.1', done));
    this.url = `http://127.0.0.1:${this.http.address().port}`;
    return this;
  }

  async stop() {
    if (!this.http.listening) return;
    this.http.closeAllConnections();
    await new Promise((done) => this.http.close(done));
  }

  async handle(request, response) {
    const { pathname } = new URL(request.url, 'http://fake');
    const page = { '/': 'index.html', '/monitor': 'monitor.html' }[pathname];
    if (page) return this.send(response, 200, 'text/html; charset=utf-8', existsSync(join(dist, page)) ? readFileSync(join(dist, page)) : '', pageHeaders);
    const headers = {};
    if (this.options.cors && ['/metrics', '/slots', '/props'].includes(pathname) && request.headers.origin === this.options.cors) {
      headers['Access-Control-Allow-Origin'] = this.options.cors;
      headers['Vary'] = 'Origin';
      if (request.method === 'OPTIONS') headers['Access-Control-Allow-Headers'] = 'Authorization, X-Api-Key';
    }
    if (request.method === 'OPTIONS') return this.send(response, 204, 'text/plain', '', headers);
    if (pathname === '/health') return this.json(response, 200, { status: 'ok' }, headers);
    if (this.options.key && request.headers.authorization !== `Bearer ${this.options.key}`) {
      const message = request.headers.authorization
        ? "the API key is not one of this server's"
        : "an API key is needed: send it as 'Authorization: Bearer KEY' or 'X-Api-Key'";
      return this.json(response, 401, { error: { message, type: 'authentication_error', param: null, code: 'invalid_api_key' } }, headers);
    }
    if (pathname === '/props') return this.json(response, 200, this.machine.props(), headers);
    if (pathname === '/slots') return this.json(response, 200, this.machine.slots(), headers);
    if (pathname === '/metrics') return this.send(response, 200, 'text/plain; version=0.0.4; charset=utf-8', this.machine.metrics(), headers);
    if (pathname === '/v1/chat/completions' && request.method === 'POST') return this.chat(request, response);
    return this.json(response, 404, { error: { message: `there is no ${request.method} ${pathname} here`, type: 'not_found_error' } }, headers);
  }

  send(response, status, type, body, headers = {}) {
    response.writeHead(status, { 'Content-Type': type, ...headers });
    response.end(body);
  }

  json(response, status, body, headers) {
    this.send(response, status, 'application/json; charset=utf-8', JSON.stringify(body), headers);
  }

  async chat(request, response) {
    let text = '';
    for await (const part of request) text += part;
    const body = JSON.parse(text);
    this.requests.push(body);
    const last = body.messages.at(-1).content ?? '';
    if (/busy/.test(last)) {
      const message = '5 requests are being served and the queue is full; try again later';
      return this.json(response, 429, { error: { message, type: 'rate_limit_error', param: null, code: 'rate_limit_exceeded' } }, { 'Retry-After': '7' });
    }
    if (/overflow/.test(last)) {
      const message = 'the prompt has 40000 tokens and a slot has room for 32768; shorten it, or start the server with a larger --ctx';
      return this.json(response, 400, { error: { message, type: 'invalid_request_error', param: null, code: 'context_length_exceeded' } });
    }
    await this.stream(body, answerFor(body), response);
  }

  async stream(body, answer, response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache', 'X-Accel-Buffering': 'no' });
    const task = this.machine.begin(body);
    let gone = false;
    response.on('close', () => {
      gone = !response.writableFinished;
      if (gone) this.aborted += 1;
      this.machine.end(task);
    });
    const head = { id: 'chatcmpl-0123456789abcdef01234567', object: 'chat.completion.chunk', created: 1764500000, model: 'tales', system_fingerprint: 'moetier-0.1.0' };
    const say = (json) => response.write(`data: ${JSON.stringify({ ...head, choices: [], ...(body.stream_options?.include_usage ? { usage: null } : {}), ...json })}\n\n`);
    const delta = (d, finish = null, rest = {}) => say({ choices: [{ index: 0, delta: d, logprobs: null, finish_reason: finish }], ...rest });
    const pause = answer.pause ?? this.options.pause;
    delta({ role: 'assistant', content: '' });
    const promptTokens = answer.full ? 32768 : 20 + Math.round(JSON.stringify(body.messages).length / 4);
    for (let i = 1; i <= (answer.progress ?? 0) && !gone && body.return_progress; i += 1) {
      say({ prompt_progress: { total: 1200, cache: 0, processed: i * 100 } });
      await sleep(Math.max(pause, 40));
    }
    response.write(': keep-alive\n\n');
    let tokens = 0;
    const parts = [...(answer.reasoning ?? []).map((t) => ({ reasoning_content: t })), ...(answer.content ?? []).map((t) => ({ content: t }))];
    for (const part of parts) {
      if (gone) return;
      delta(part);
      tokens += 1;
      this.machine.token(task);
      if (pause > 0) await sleep(pause);
    }
    for (const [index, call] of (answer.calls ?? []).entries()) {
      delta({ tool_calls: [{ index, id: call.id, type: 'function', function: { name: call.name, arguments: '' } }] });
      delta({ tool_calls: [{ index, function: { arguments: call.arguments } }] });
      tokens += 12;
    }
    if (answer.cut) return response.destroy();
    if (answer.error) {
      response.write(`data: ${JSON.stringify({ error: { message: answer.error, type: 'server_error', param: null, code: null } })}\n\n`);
      return response.end();
    }
    const timings = {
      cache_n: 8, prompt_n: promptTokens - 8, prompt_ms: 210, prompt_per_token_ms: 2, prompt_per_second: 480.5, predicted_n: tokens,
      predicted_ms: tokens * 26.2, predicted_per_token_ms: 26.2, predicted_per_second: 38.2,
    };
    delta({}, answer.finish ?? (answer.calls ? 'tool_calls' : 'stop'), { timings });
    if (body.stream_options?.include_usage) {
      say({ usage: { prompt_tokens: promptTokens, completion_tokens: tokens, total_tokens: promptTokens + tokens, prompt_tokens_details: { cached_tokens: 8 } } });
    }
    response.end('data: [DONE]\n\n');
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = await new FakeServer({ machine: { busy: true } }).start(Number(process.argv[2] ?? 0));
  console.log(server.url);
}
