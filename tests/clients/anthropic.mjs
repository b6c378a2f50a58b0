// Anthropic's client.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { document, expectCancelled, key, logit_bias, long, messages, parameters, url } from './common.mjs';
import { expectEvent, expectShape } from './shape.mjs';

const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const model = (await anthropic.models.list()).data[0].id;

const block = {
  type: '=text|=thinking|=tool_use', 'text?': 'string', 'thinking?': 'string', 'signature?': 'string', 'id?': 'string', 'name?': 'string',
  'input?': 'object',
};
const usage = { input_tokens: 'int', output_tokens: 'int', cache_creation_input_tokens: 'int', cache_read_input_tokens: 'int' };
const reasons = '=end_turn|=max_tokens|=stop_sequence|=tool_use|=model_context_window_exceeded';
const messageShape = {
  id: 'string', type: '=message', role: '=assistant', model: `=${model}`, content: [block], stop_reason: reasons,
  stop_sequence: 'string|null', usage,
};
const events = {
  message_start: { message: { ...messageShape, stop_reason: 'null', stop_sequence: 'null' } },
  content_block_start: { index: 'int', content_block: block },
  content_block_delta: {
    index: 'int',
    delta: { type: '=text_delta|=thinking_delta|=input_json_delta', 'text?': 'string', 'thinking?': 'string', 'partial_json?': 'string' },
  },
  content_block_stop: { index: 'int' },
  message_delta: { delta: { stop_reason: reasons, stop_sequence: 'string|null' }, usage },
  message_stop: {},
};

/** A message streamed, each event checked, and their order told. */
async function streamed(request) {
  const order = [], deltas = { text: '', thinking: '' };
  for await (const event of await anthropic.messages.create({ ...request, stream: true })) {
    expectEvent(event, events);
    if (order.at(-1) !== event.type) order.push(event.type);
    deltas.text += event.delta?.text ?? '';
    deltas.thinking += event.delta?.thinking ?? '';
  }
  const final = await anthropic.messages.stream(request).finalMessage();
  expectShape(final, messageShape);
  return { order, ...deltas, final };
}

/** Every error has Anthropic's shape; its class is the client's word for the status. */
async function expectError(promise, kind, type, words = '') {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof kind, `${error}`);
    expectShape(error.error, { type: '=error', error: { type: `=${type}`, message: 'string' } });
    assert.ok(error.error.error.message.includes(words), error.error.error.message);
    return true;
  });
}

export default {
  async 'anthropic: messages'() {
    const message = await anthropic.messages.create({ model, messages, max_tokens: 8, temperature: 0 });
    expectShape(message, messageShape);
    assert.equal(message.stop_reason, 'max_tokens');
    assert.equal(message.usage.output_tokens, 8);
  },
  async 'anthropic: a stream is the same text'() {
    const request = { model, messages, max_tokens: 12, temperature: 0, system: 'Be brief.' };
    const whole = await anthropic.messages.create(request);
    const { order, text, final } = await streamed(request);
    assert.deepEqual(order, ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop']);
    assert.equal(text, whole.content[0].text);
    assert.deepEqual(final.content, whole.content);
    assert.equal(final.stop_reason, 'max_tokens');
  },
  async 'anthropic: stop sequences'() {
    const request = { model, messages, max_tokens: 30, temperature: 0 };
    const plain = (await anthropic.messages.create(request)).content[0].text;
    const stop = plain.slice(12, 18);
    const stopped = await anthropic.messages.create({ ...request, stop_sequences: [stop] });
    expectShape(stopped, messageShape);
    assert.equal(stopped.stop_reason, 'stop_sequence');
    assert.equal(stopped.stop_sequence, stop);
    assert.equal(stopped.content[0].text, plain.slice(0, plain.indexOf(stop)));
  },
  async 'anthropic: thinking'() {
    const request = { model, messages, max_tokens: 20, temperature: 0, thinking: { type: 'enabled', budget_tokens: 1024 } };
    const whole = await anthropic.messages.create(request);
    expectShape(whole, messageShape);
    assert.equal(whole.content[0].type, 'thinking');
    assert.ok(whole.content[0].thinking.length > 0);
    const { thinking, final } = await streamed(request);
    assert.equal(thinking, whole.content[0].thinking);
    assert.deepEqual(final.content, whole.content);
    // A budget that is used up ends the thought, and the answer goes on.
    const bounded = { ...request, max_tokens: 40, thinking: { type: 'enabled', budget_tokens: 8 } };
    const short = await anthropic.messages.create(bounded);
    expectShape(short, messageShape);
    assert.deepEqual(short.content.map((block) => block.type), ['thinking', 'text']);
    assert.ok(whole.content[0].thinking.startsWith(short.content[0].thinking));
    assert.ok(short.content[1].text.length > 0);
    const shortStream = await streamed(bounded);
    assert.equal(shortStream.thinking, short.content[0].thinking);
    assert.deepEqual(shortStream.final.content, short.content);
    const off = await anthropic.messages.create({ ...request, thinking: { type: 'disabled' } });
    assert.equal(off.content[0].type, 'text');
    // A thought of before is taken back.
    const next = await anthropic.messages.create({
      ...request, max_tokens: 4,
      messages: [...messages, { role: 'assistant', content: [...whole.content, { type: 'text', text: 'Yes.' }] },
        { role: 'user', content: 'Go on' }],
    });
    expectShape(next, messageShape);
  },
  async 'anthropic: tools'() {
    const request = {
      model, messages, max_tokens: 200, temperature: 0, logit_bias,
      tools: [{ name: 'weather', description: 'The weather', input_schema: parameters }],
      tool_choice: { type: 'tool', name: 'weather', disable_parallel_tool_use: true },
    };
    const message = await anthropic.messages.create(request);
    expectShape(message, messageShape);
    assert.equal(message.stop_reason, 'tool_use');
    const use = message.content.find((one) => one.type === 'tool_use');
    expectShape(use.input, document);
    const { final } = await streamed(request);
    assert.deepEqual(final.content.find((one) => one.type === 'tool_use').input, use.input);
    const next = await anthropic.messages.create({
      ...request, tool_choice: { type: 'none' }, max_tokens: 4,
      messages: [...messages, { role: 'assistant', content: message.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'Snow' }] }],
    });
    expectShape(next, messageShape);
  },
  async 'anthropic: tokens and models'() {
    const counted = await anthropic.messages.countTokens({ model, messages });
    expectShape(counted, { input_tokens: 'int' });
    assert.ok(counted.input_tokens > 3);
    expectShape((await anthropic.models.list()).data, [{ id: 'string', type: '=model', display_name: 'string' }]);
  },
  async 'anthropic: errors'() {
    await expectError(anthropic.messages.create({ model, messages: [], max_tokens: 4 }), Anthropic.BadRequestError, 'invalid_request_error', 'messages');
    await expectError(anthropic.messages.create({ model, messages }), Anthropic.BadRequestError, 'invalid_request_error', 'max_tokens');
    await expectError(anthropic.messages.create({ model, max_tokens: 4, messages: [{ role: 'user', content: long }] }),
      Anthropic.BadRequestError, 'invalid_request_error', '1024');  // the context that it does not fit in
    await expectError(anthropic.messages.create({ model, messages: [], max_tokens: 4, stream: true }), Anthropic.BadRequestError,
      'invalid_request_error');
    if (key !== 'none') {
      const stranger = new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 });
      await expectError(stranger.messages.create({ model, messages, max_tokens: 4 }), Anthropic.AuthenticationError, 'authentication_error');
    }
  },
  async 'anthropic: a full context ends the message'() {
    const count = (words) => anthropic.messages.countTokens({ model, messages: [{ role: 'user', content: 'king '.repeat(words) }] });
    const each = ((await count(200)).input_tokens - (await count(100)).input_tokens) / 100;
    const nearly = [{ role: 'user', content: 'king '.repeat(Math.floor(1000 / each) - 20) }];
    const message = await anthropic.messages.create({ model, messages: nearly, max_tokens: 900, temperature: 0, ignore_eos: true });
    expectShape(message, messageShape);
    assert.equal(message.stop_reason, 'model_context_window_exceeded');
  },
  async 'anthropic: cancel'() {
    await expectCancelled(900, async () => {
      const runner = anthropic.messages.stream({ model, messages, max_tokens: 900, ignore_eos: true });
      await new Promise((resolve) => runner.once('text', resolve));
      runner.abort();
      await assert.rejects(runner.finalMessage(), Anthropic.APIUserAbortError);
    });
  },
};
