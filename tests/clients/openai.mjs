// OpenAI's client.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { document, expectCancelled, key, logit_bias, long, messages, parameters, url } from './common.mjs';
import { expectEvent, expectShape } from './shape.mjs';

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;

const usage = { prompt_tokens: 'int', completion_tokens: 'int', total_tokens: 'int', prompt_tokens_details: { cached_tokens: 'int' },
  completion_tokens_details: { reasoning_tokens: 'int' } };
const logprob = { token: 'string', logprob: 'number', bytes: ['int'] };
const chatShape = {
  id: 'string', object: '=chat.completion', created: 'int', model: `=${model}`, usage,
  choices: [{
    index: 'int', finish_reason: '=stop|=length|=tool_calls', logprobs: 'object|null',
    message: {
      role: '=assistant', content: 'string|null', refusal: 'null', 'reasoning_content?': 'string',
      'tool_calls?': [{ id: 'string', type: '=function', function: { name: 'string', arguments: 'string' } }],
    },
  }],
};
const chunkShape = {
  id: 'string', object: '=chat.completion.chunk', created: 'int', model: `=${model}`, 'usage?': 'object|null',
  choices: [{
    index: 'int', finish_reason: '=stop|=length|=tool_calls|null', logprobs: 'object|null',
    delta: {
      'role?': '=assistant', 'content?': 'string', 'reasoning_content?': 'string',
      'tool_calls?': [{ index: 'int', 'id?': 'string', 'type?': '=function', function: { 'name?': 'string', 'arguments?': 'string' } }],
    },
  }],
};
const textChoice = { text: 'string', index: 'int', logprobs: 'object|null', finish_reason: '=stop|=length' };
const textShape = { id: 'string', object: '=text_completion', created: 'int', model: `=${model}`, choices: [textChoice] };
const textChunk = { ...textShape, choices: [{ ...textChoice, finish_reason: '=stop|=length|null' }] };
const tokens = {
  tokens: ['string'], token_logprobs: ['number'], top_logprobs: ['object'], text_offset: ['int'],
};
const modelShape = { id: 'string', object: '=model', created: 'int', owned_by: 'string' };

const item = {
  type: '=message|=reasoning|=function_call', id: 'string', status: '=in_progress|=completed|=incomplete', 'role?': '=assistant',
  'content?': [{ type: '=output_text|=reasoning_text', text: 'string' }], 'summary?': 'array', 'call_id?': 'string', 'name?': 'string',
  'arguments?': 'string',
};
const response = {
  id: 'string', object: '=response', created_at: 'int', status: '=completed|=incomplete', error: 'null', incomplete_details: 'object|null',
  instructions: 'string|null', metadata: 'object', model: `=${model}`, output: [item], parallel_tool_calls: 'bool', temperature: 'number',
  text: { format: { type: 'string' } }, tool_choice: 'any', tools: 'array', top_p: 'number',
  usage: {
    input_tokens: 'int', input_tokens_details: { cached_tokens: 'int' }, output_tokens: 'int',
    output_tokens_details: { reasoning_tokens: 'int' }, total_tokens: 'int',
  },
};
const begun = { response: { ...response, status: '=in_progress', usage: 'null' } };
const place = { sequence_number: 'int', item_id: 'string', output_index: 'int' };
const part = { ...place, content_index: 'int' };
const responseEvents = {
  'response.created': begun,
  'response.in_progress': begun,
  'response.output_item.added': { sequence_number: 'int', output_index: 'int', item },
  'response.output_item.done': { sequence_number: 'int', output_index: 'int', item },
  'response.content_part.added': { ...part, part: { type: '=output_text', text: 'string', annotations: 'array' } },
  'response.content_part.done': { ...part, part: { type: '=output_text', text: 'string', annotations: 'array' } },
  'response.output_text.delta': { ...part, delta: 'string', logprobs: 'array' },
  'response.output_text.done': { ...part, text: 'string', logprobs: 'array' },
  'response.reasoning_text.delta': { ...part, delta: 'string' },
  'response.reasoning_text.done': { ...part, text: 'string' },
  'response.function_call_arguments.delta': { ...place, delta: 'string' },
  'response.function_call_arguments.done': { ...place, name: 'string', arguments: 'string' },
  'response.completed': { response },
  'response.incomplete': { response },
};

/** A response's stream, each event checked; the client's own events beside them are left out. */
async function finalResponse(request) {
  const runner = openai.responses.stream(request);
  let last = -1, text = '';
  for await (const event of runner) {
    expectEvent(event, responseEvents);
    assert.equal(event.sequence_number, ++last);
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  return { final: await runner.finalResponse(), text };
}

/** Every error has OpenAI's shape; its class is the client's word for the status. */
async function expectError(promise, kind, expected) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof kind, `${error}`);
    expectShape(error.error, { message: 'string', type: 'string', param: 'string|null', code: 'string|null' });
    for (const [name, value] of Object.entries(expected)) assert.equal(error[name], value);
    return true;
  });
}

export default {
  async 'openai: a model by name'() {
    expectShape((await openai.models.list()).data, [modelShape]);
    const one = await openai.models.retrieve(model);
    expectShape(one, modelShape);
    assert.equal(one.id, model);
    await expectError(openai.models.retrieve('nothing'), OpenAI.NotFoundError, { code: 'model_not_found' });
  },
  async 'openai: chat'() {
    const chat = await openai.chat.completions.create({ model, messages, max_tokens: 8, temperature: 0 });
    expectShape(chat, chatShape);
    assert.equal(chat.choices[0].finish_reason, 'length');
    assert.equal(chat.usage.completion_tokens, 8);
    assert.ok(chat.choices[0].message.content.length > 0);
  },
  async 'openai: a budget of thoughts'() {
    const request = {
      model, messages, max_tokens: 40, temperature: 0, chat_template_kwargs: { enable_thinking: true }, reasoning_budget: 8,
    };
    const whole = await openai.chat.completions.create(request);
    expectShape(whole, chatShape);
    assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, 8);
    assert.ok(whole.choices[0].message.reasoning_content.length > 0);
    assert.ok(whole.choices[0].message.content.length > 0);
    const off = await openai.chat.completions.create({ ...request, reasoning_budget: 0 });
    assert.equal(off.usage.completion_tokens_details.reasoning_tokens, 0);
    assert.equal(off.choices[0].message.reasoning_content, undefined);
  },
  async 'openai: a chat stream is the same text'() {
    const request = { model, messages, max_tokens: 12, temperature: 0 };
    const whole = await openai.chat.completions.create(request);
    const runner = openai.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    let text = '';
    runner.on('content', (delta) => (text += delta));
    runner.on('chunk', (chunk) => expectShape(chunk, chunkShape));
    const final = await runner.finalChatCompletion();
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(final.choices[0].message.content, text);
    expectShape(await runner.totalUsage(), { completion_tokens: 'int', prompt_tokens: 'int', total_tokens: 'int' });
    assert.equal((await runner.totalUsage()).completion_tokens, 12);
  },
  async 'openai: logprobs, n, seed, stop'() {
    const request = { model, messages, max_tokens: 6, temperature: 1, seed: 7, n: 2, logprobs: true, top_logprobs: 3 };
    const [a, b] = [await openai.chat.completions.create(request), await openai.chat.completions.create(request)];
    assert.deepEqual(a.choices, b.choices);
    assert.equal(a.choices.length, 2);
    for (const choice of a.choices) expectShape(choice.logprobs.content, [{ ...logprob, top_logprobs: [logprob] }]);
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
    expectShape(chat, chatShape);
    expectShape(JSON.parse(chat.choices[0].message.content), document);
  },
  async 'openai: tools, streamed and not'() {
    const request = {
      model, messages, max_tokens: 200, temperature: 1, seed: 5, parallel_tool_calls: false, logit_bias,
      tools: [{ type: 'function', function: { name: 'weather', description: 'The weather', parameters } }],
      tool_choice: { type: 'function', function: { name: 'weather' } },
    };
    const chat = await openai.chat.completions.create(request);
    expectShape(chat, chatShape);
    assert.equal(chat.choices[0].finish_reason, 'tool_calls');
    const call = chat.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, 'weather');
    expectShape(JSON.parse(call.function.arguments), document);
    const runner = openai.chat.completions.stream(request);
    runner.on('chunk', (chunk) => expectShape(chunk, chunkShape));
    const streamed = await runner.finalChatCompletion();
    assert.deepEqual(JSON.parse(streamed.choices[0].message.tool_calls[0].function.arguments), JSON.parse(call.function.arguments));
    const next = await openai.chat.completions.create({
      model, max_tokens: 4, tools: request.tools,
      messages: [...messages, chat.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Snow' }],
    });
    expectShape(next, chatShape);
  },
  async 'openai: completions'() {
    const request = { model, prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
    const whole = await openai.completions.create(request);
    expectShape(whole, { ...textShape, usage });
    let text = '';
    for await (const chunk of await openai.completions.create({ ...request, stream: true })) {
      expectShape(chunk, textChunk);
      text += chunk.choices[0].text;
    }
    assert.equal(text, whole.choices[0].text);
  },
  async 'openai: completions with logprobs, streamed and not'() {
    const request = { model, prompt: 'Once upon a time', max_tokens: 6, temperature: 0, logprobs: 2 };
    const { text, logprobs } = (await openai.completions.create(request)).choices[0];
    expectShape(logprobs, tokens);
    for (const list of Object.keys(tokens)) assert.equal(logprobs[list].length, 6);
    assert.equal(logprobs.tokens.join(''), text);
    logprobs.token_logprobs.forEach((value, i) => {
      assert.ok(value <= 0);
      assert.equal(Math.max(...Object.values(logprobs.top_logprobs[i])), value);  // greedy takes the likeliest
    });
    const streamed = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for await (const chunk of await openai.completions.create({ ...request, stream: true })) {
      expectShape(chunk, textChunk);
      for (const list of Object.keys(streamed)) streamed[list].push(...(chunk.choices[0].logprobs?.[list] ?? []));
    }
    assert.deepEqual(streamed, logprobs);
  },
  async 'openai: completions, errors and cancel'() {
    await expectError(openai.completions.create({ model, prompt: 5 }), OpenAI.BadRequestError, { param: 'prompt' });
    await expectCancelled(900, async () => {
      const stream = await openai.completions.create({
        model, prompt: 'Once upon a time', max_tokens: 900, ignore_eos: true, stream: true,
      });
      for await (const chunk of stream) if (chunk) break;  // which hangs up
    });
  },
  async 'openai: responses'() {
    const request = { model, input: 'Once upon a time', max_output_tokens: 10, temperature: 0 };
    const whole = await openai.responses.create(request);
    expectShape(whole, response);
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.usage.output_tokens, 10);
    const { final, text } = await finalResponse(request);
    assert.equal(text, whole.output_text);
    assert.equal(final.output[0].content[0].text, text);
    const calling = {
      model, input: 'Weather?', max_output_tokens: 200, temperature: 0, tool_choice: 'required', parallel_tool_calls: false, logit_bias,
      tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
    };
    const called = await openai.responses.create(calling);
    expectShape(called, response);
    const call = called.output.find((one) => one.type === 'function_call');
    expectShape(JSON.parse(call.arguments), document);
    const streamed = (await finalResponse(calling)).final.output.find((one) => one.type === 'function_call');
    assert.equal(streamed.arguments, call.arguments);
  },
  async 'openai: responses by a JSON schema'() {
    const request = {
      model, input: 'Weather?', max_output_tokens: 200, temperature: 0, logit_bias,
      text: { format: { type: 'json_schema', name: 'weather', strict: true, schema: parameters } },
    };
    const whole = await openai.responses.create(request);
    expectShape(whole, response);
    assert.equal(whole.status, 'completed');
    expectShape(JSON.parse(whole.output_text), document);
    const { final, text } = await finalResponse(request);
    assert.equal(text, whole.output_text);
    expectShape(JSON.parse(final.output[0].content[0].text), document);
    assert.deepEqual(whole.text.format.schema, parameters);
  },
  async 'openai: responses, errors and cancel'() {
    await expectError(openai.responses.create({ model }), OpenAI.BadRequestError, { param: 'input' });
    await expectError(openai.responses.create({ model, input: 'Hi', previous_response_id: 'resp_1' }), OpenAI.BadRequestError,
      { param: 'previous_response_id' });
    const unknown = { type: 'json_schema', name: 'x', schema: { type: 'wish' } };
    await expectError(openai.responses.create({ model, input: 'Hi', text: { format: unknown } }), OpenAI.BadRequestError, {});
    await expectError(openai.responses.create({ model, input: long }), OpenAI.BadRequestError, { code: 'context_length_exceeded' });
    await expectCancelled(900, async () => {
      const stream = await openai.responses.create({
        model, input: 'Once upon a time', max_output_tokens: 900, ignore_eos: true, stream: true,
      });
      for await (const event of stream) if (event.type === 'response.output_text.delta') break;
    });
  },
  async 'openai: embeddings, or a clear refusal'() {
    try {
      const embeddings = await openai.embeddings.create({ model, input: ['The king', 'The queen'] });
      expectShape(embeddings, {
        object: '=list', model: `=${model}`, usage: { prompt_tokens: 'int', total_tokens: 'int' },
        data: [{ object: '=embedding', index: 'int', embedding: ['number'] }],
      });
      assert.equal(embeddings.data.length, 2);
      assert.ok(embeddings.data[0].embedding.length > 0);
    } catch (error) {
      assert.equal(error.status, 501, `${error}`);
    }
  },
  async 'openai: errors'() {
    await expectError(openai.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError, { param: 'messages' });
    await expectError(openai.chat.completions.create({ model, messages, temperature: 'hot' }), OpenAI.BadRequestError, { param: 'temperature' });
    await expectError(openai.completions.create({ model, prompt: long }), OpenAI.BadRequestError, { code: 'context_length_exceeded' });
    if (key !== 'none') {
      const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 });
      await expectError(stranger.models.list(), OpenAI.AuthenticationError, { code: 'invalid_api_key' });
    }
  },
  async 'openai: cancel'() {
    await expectCancelled(900, async () => {
      const stream = await openai.chat.completions.create({ model, messages, max_tokens: 900, ignore_eos: true, stream: true });
      for await (const chunk of stream) if (chunk) break;
      stream.controller.abort();
    });
  },
};
