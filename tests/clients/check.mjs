// Drives a running server with the official clients: node check.mjs URL [KEY]. Exits 1 at the first thing that is wrong.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';

const [url, key = 'none'] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Once upon a time' }];
const parameters = {
  type: 'object',
  properties: { days: { type: 'integer', minimum: 1, maximum: 9 }, cold: { type: 'boolean' } },
  required: ['days', 'cold'],
  additionalProperties: false,
};

// This model was never taught to end a thought, so it is kept from beginning one.
const logit_bias = { th: -100, thi: -100, thin: -100, think: -100, h: -100, hi: -100, hin: -100, hink: -100 };

const checks = {
  async 'openai: a model by name'() {
    assert.equal((await openai.models.retrieve(model)).id, model);
    await assert.rejects(openai.models.retrieve('nothing'), OpenAI.NotFoundError);
  },
  async 'openai: chat'() {
    const chat = await openai.chat.completions.create({ model, messages, max_tokens: 8, temperature: 0 });
    assert.equal(chat.choices[0].finish_reason, 'length');
    assert.equal(chat.usage.completion_tokens, 8);
    assert.ok(chat.choices[0].message.content.length > 0);
  },
  async 'openai: a chat stream is the same text'() {
    const request = { model, messages, max_tokens: 12, temperature: 0 };
    const whole = await openai.chat.completions.create(request);
    const runner = openai.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    let text = '';
    runner.on('content', (delta) => (text += delta));
    const final = await runner.finalChatCompletion();
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(final.choices[0].message.content, text);
    assert.equal((await runner.totalUsage()).completion_tokens, 12);
  },
  async 'openai: logprobs, n, seed, stop'() {
    const request = { model, messages, max_tokens: 6, temperature: 1, seed: 7, n: 2, logprobs: true, top_logprobs: 3 };
    const [a, b] = [await openai.chat.completions.create(request), await openai.chat.completions.create(request)];
    assert.deepEqual(a.choices, b.choices);
    assert.equal(a.choices.length, 2);
    assert.equal(a.choices[0].logprobs.content.length, 6);
    assert.equal(a.choices[0].logprobs.content[0].top_logprobs.length, 3);
    const plain = await openai.chat.completions.create({ model, messages, max_tokens: 30, temperature: 0 });
    const stop = plain.choices[0].message.content.slice(12, 18);
    const stopped = await openai.chat.completions.create({ model, messages, max_tokens: 30, temperature: 0, stop });
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    assert.ok(!stopped.choices[0].message.content.includes(stop));
  },
  async 'openai: a JSON schema'() {
    const chat = await openai.chat.completions.create({
      model, messages, max_tokens: 200, temperature: 1, seed: 3,
      response_format: { type: 'json_schema', json_schema: { name: 'weather', strict: true, schema: parameters } },
    });
    const document = JSON.parse(chat.choices[0].message.content);
    assert.ok(Number.isInteger(document.days) && typeof document.cold === 'boolean');
  },
  async 'openai: tools, streamed and not'() {
    const request = {
      model, messages, max_tokens: 200, temperature: 1, seed: 5, parallel_tool_calls: false, logit_bias,
      tools: [{ type: 'function', function: { name: 'weather', description: 'The weather', parameters } }],
      tool_choice: { type: 'function', function: { name: 'weather' } },
    };
    const chat = await openai.chat.completions.create(request);
    assert.equal(chat.choices[0].finish_reason, 'tool_calls');
    const call = chat.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, 'weather');
    const streamed = await openai.chat.completions.stream(request).finalChatCompletion();
    assert.deepEqual(JSON.parse(streamed.choices[0].message.tool_calls[0].function.arguments), JSON.parse(call.function.arguments));
    const next = await openai.chat.completions.create({
      model, max_tokens: 4, tools: request.tools,
      messages: [...messages, chat.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Snow' }],
    });
    assert.equal(next.object, 'chat.completion');
  },
  async 'openai: completions'() {
    const request = { model, prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
    const whole = await openai.completions.create(request);
    let text = '';
    for await (const part of await openai.completions.create({ ...request, stream: true })) text += part.choices[0].text;
    assert.equal(text, whole.choices[0].text);
  },
  async 'openai: responses'() {
    const request = { model, input: 'Once upon a time', max_output_tokens: 10, temperature: 0 };
    const whole = await openai.responses.create(request);
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.usage.output_tokens, 10);
    const runner = openai.responses.stream(request);
    let text = '';
    runner.on('response.output_text.delta', (event) => (text += event.delta));
    const final = await runner.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(final.output[0].content[0].text, text);
    const called = await openai.responses.create({
      model, input: 'Weather?', max_output_tokens: 200, tool_choice: 'required', parallel_tool_calls: false, logit_bias,
      tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
    });
    const call = called.output.find((item) => item.type === 'function_call');
    assert.ok(Number.isInteger(JSON.parse(call.arguments).days));
  },
  async 'openai: embeddings, or a clear refusal'() {
    try {
      const { data } = await openai.embeddings.create({ model, input: ['The king', 'The queen'] });
      assert.equal(data.length, 2);
      assert.ok(data[0].embedding.length > 0);
    } catch (error) {
      assert.equal(error.status, 501);
    }
  },
  async 'openai: errors'() {
    await assert.rejects(openai.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError);
    await assert.rejects(openai.chat.completions.create({ model, messages, temperature: 'hot' }), (error) => error.param === 'temperature');
    const long = 'king '.repeat(20000);
    await assert.rejects(openai.completions.create({ model, prompt: long }), (error) => error.code === 'context_length_exceeded');
    if (key !== 'none') {
      const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 });
      await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    }
  },
  async 'openai: cancel'() {
    const stream = await openai.chat.completions.create({ model, messages, max_tokens: 400, stream: true, logit_bias: {} });
    for await (const part of stream) if (part) break;
    stream.controller.abort();
    await idle();
  },
  async 'anthropic: messages'() {
    const message = await anthropic.messages.create({ model, messages, max_tokens: 8, temperature: 0 });
    assert.equal(message.type, 'message');
    assert.equal(message.stop_reason, 'max_tokens');
    assert.equal(message.usage.output_tokens, 8);
  },
  async 'anthropic: a stream is the same text'() {
    const request = { model, messages, max_tokens: 12, temperature: 0, system: 'Be brief.' };
    const whole = await anthropic.messages.create(request);
    const runner = anthropic.messages.stream(request);
    let text = '';
    runner.on('text', (delta) => (text += delta));
    const final = await runner.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual(final.content, whole.content);
    assert.equal(final.stop_reason, 'max_tokens');
  },
  async 'anthropic: tools'() {
    const request = {
      model, messages, max_tokens: 200, temperature: 0, logit_bias,
      tools: [{ name: 'weather', description: 'The weather', input_schema: parameters }],
      tool_choice: { type: 'tool', name: 'weather', disable_parallel_tool_use: true },
    };
    const message = await anthropic.messages.create(request);
    assert.equal(message.stop_reason, 'tool_use');
    const use = message.content.find((block) => block.type === 'tool_use');
    assert.ok(Number.isInteger(use.input.days));
    const streamed = await anthropic.messages.stream(request).finalMessage();
    assert.deepEqual(streamed.content.find((block) => block.type === 'tool_use').input, use.input);
    const next = await anthropic.messages.create({
      ...request, tool_choice: { type: 'none' }, max_tokens: 4,
      messages: [...messages, { role: 'assistant', content: message.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'Snow' }] }],
    });
    assert.equal(next.type, 'message');
  },
  async 'anthropic: tokens, models, errors, cancel'() {
    const { input_tokens } = await anthropic.messages.countTokens({ model, messages });
    assert.ok(input_tokens > 3);
    assert.equal((await anthropic.models.list()).data[0].id, model);
    await assert.rejects(anthropic.messages.create({ model, messages: [], max_tokens: 4 }), Anthropic.BadRequestError);
    if (key !== 'none') {
      const stranger = new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 });
      await assert.rejects(stranger.models.list(), Anthropic.AuthenticationError);
    }
    const runner = anthropic.messages.stream({ model, messages, max_tokens: 400 });
    await new Promise((resolve) => runner.once('text', resolve));
    runner.abort();
    await assert.rejects(runner.finalMessage(), Anthropic.APIUserAbortError);
    await idle();
  },
};

/** Waits until no slot works any more: what was cancelled has ended. */
async function idle() {
  for (let i = 0; i < 100; ++i) {
    const slots = await (await fetch(`${url}/slots`, { headers: { authorization: `Bearer ${key}` } })).json();
    if (slots.every((slot) => !slot.is_processing)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail('a slot still works for a client that has gone');
}

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}
process.exit(failed ? 1 : 0);
