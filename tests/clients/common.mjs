// What the checks of both clients share.
import assert from 'node:assert/strict';

export const [url, key = 'none'] = process.argv.slice(2);
export const messages = [{ role: 'user', content: 'Once upon a time' }];
export const parameters = {
  type: 'object',
  properties: { days: { type: 'integer', minimum: 1, maximum: 9 }, cold: { type: 'boolean' } },
  required: ['days', 'cold'],
  additionalProperties: false,
};
export const document = { days: 'int', cold: 'bool' };

// This model was never taught to end a thought, so it is kept from beginning one.
export const logit_bias = { th: -100, thi: -100, thin: -100, think: -100, h: -100, hi: -100, hin: -100, hink: -100 };

const headers = { authorization: `Bearer ${key}` };

async function predicted() {
  const text = await (await fetch(`${url}/metrics`, { headers })).text();
  return Number(/^llamacpp:tokens_predicted_total (\S+)$/m.exec(text)[1]);
}

/** Waits until no slot works any more: what was cancelled has ended. */
async function idle() {
  for (let i = 0; i < 100; ++i) {
    const slots = await (await fetch(`${url}/slots`, { headers })).json();
    if (slots.every((slot) => !slot.is_processing)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail('a slot still works for a client that has gone');
}

/** `begin` asks for `tokens` tokens and goes away: the server must be idle soon, and have made fewer. */
export async function expectCancelled(tokens, begin) {
  await idle();
  const before = await predicted();
  await begin();
  await idle();
  const made = (await predicted()) - before;
  assert.ok(made < tokens, `${made} tokens were made of ${tokens} for a client that has gone`);
}

export const long = 'king '.repeat(20000);
