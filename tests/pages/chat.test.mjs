// The chat in a browser, against the stand-in server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { accessibility, launch, openPage } from './browser.mjs';
import { FakeServer, markdownAnswer } from './fake-server.mjs';

let browser;
let server;
const servers = [];
const start = async (options, port) => {
  servers.push(await new FakeServer(options).start(port));
  return servers.at(-1);
};
before(async () => {
  browser = await launch();
  server = await start();
});
after(async () => {
  await browser.close();
  for (const one of servers) await one.stop();
});

const send = async (page, text) => {
  await page.fill('#composer', text);
  await page.press('#composer', 'Enter');
};
const idle = (page) => page.getByRole('button', { name: 'Send' }).waitFor();
const ask = async (page, text) => {
  await send(page, text);
  await idle(page);
};
const lastAnswer = (page) => page.getByRole('listitem', { name: 'Answer' }).last();
const open = async (options, expected) => {
  const opened = await openPage(browser, options, expected);
  await opened.page.goto(server.url);
  await opened.page.getByRole('heading', { name: 'tales-30b-a3b' }).waitFor();
  return opened;
};

test('a message is sent and its answer streams in as markdown', async () => {
  const { page, done } = await open({ permissions: ['clipboard-read', 'clipboard-write'] });
  await send(page, 'Tell me about tiers in markdown');
  await lastAnswer(page).getByText('A Mixture-of-Experts model').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Stop' }).isVisible(), 'it is still streaming when its beginning is shown');
  await idle(page);
  const answer = lastAnswer(page);
  assert.equal(await answer.locator('h1').innerText(), 'Tiers in a few words');
  assert.equal(await answer.locator('td').count(), 9);
  assert.ok((await answer.locator('.hljs-keyword').count()) > 0, 'code is coloured');
  assert.equal(await answer.locator('script, img').count(), 0, 'nothing of a model runs or is fetched');
  assert.equal(await answer.getByRole('link', { name: 'a picture' }).getAttribute('rel'), 'noopener noreferrer nofollow');
  assert.match(await answer.innerText(), /<script>alert\("never run"\)<\/script>/);
  assert.match(await answer.locator('.stats').innerText(), /^\d+ tokens · 38\.2 tok\/s · first after .* · prompt \d+ \(8 kept\)/);
  await answer.getByRole('button', { name: 'Copy', exact: true }).first().click();
  const code = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(markdownAnswer.includes(code) && code.startsWith('// Hits are ready'), 'the code is on the clipboard as it was written');
  const body = server.requests.at(-1);
  assert.equal(body.stream, true);
  assert.deepEqual(body.messages, [{ role: 'user', content: 'Tell me about tiers in markdown' }]);
  assert.ok(!('temperature' in body), 'what nobody set is the server\'s choice');
  await done('chat-markdown');
});

test('a stream stops at once, and the answer can go on', async () => {
  const { page, done } = await open();
  const aborted = server.aborted;
  await send(page, 'Count forever');
  await lastAnswer(page).getByText('tick tick').waitFor();
  await page.keyboard.press('Escape');
  await idle(page);
  await lastAnswer(page).getByText('Stopped.').waitFor();
  for (let i = 0; i < 100 && server.aborted === aborted; i += 1) await new Promise((r) => setTimeout(r, 20));
  assert.equal(server.aborted, aborted + 1, 'the server is told by the closed connection');
  const before = (await lastAnswer(page).locator('.prose').innerText()).trim();
  await page.getByRole('button', { name: 'Go on' }).click();
  await idle(page);
  assert.deepEqual(server.requests.at(-1).messages.at(-1), { role: 'assistant', content: before });
  assert.match(await lastAnswer(page).locator('.prose').innerText(), /tick\s+limit, and goes on after it\.$/);
  await done();
});

test('an answer is made again, and both versions stay', async () => {
  const { page, done } = await open();
  await ask(page, 'First question');
  await ask(page, 'Second question');
  await lastAnswer(page).getByRole('button', { name: 'Answer again' }).click();
  await page.getByText('2 / 2').waitFor();
  await idle(page);
  assert.equal(server.requests.at(-1).messages.length, 3, 'the answer before is not part of what is asked');
  await page.getByRole('button', { name: 'Version before' }).click();
  await page.getByText('1 / 2').waitFor();
  await done();
});

test('a message is edited; what followed the old one stays with it', async () => {
  const { page, done } = await open();
  await ask(page, 'First question');
  await ask(page, 'Second question');
  await page.getByRole('button', { name: 'Edit your message' }).first().click();
  const editor = page.getByRole('textbox', { name: 'Edit your message' });
  assert.equal(await editor.inputValue(), 'First question');
  await editor.fill('Another first question');
  await editor.press('Enter');
  await page.getByText('You said: Another first question').waitFor();
  await idle(page);
  assert.equal(await page.getByRole('listitem', { name: 'Your message' }).count(), 1);
  await page.getByRole('button', { name: 'Version before' }).click();
  await page.getByText('You said: Second question').waitFor();
  // Arrow up in an empty message edits the last one, Escape leaves it as it is.
  await page.locator('#composer').press('ArrowUp');
  assert.equal(await page.getByRole('textbox', { name: 'Edit your message' }).inputValue(), 'Second question');
  await page.keyboard.press('Escape');
  assert.equal(await page.getByRole('textbox', { name: 'Edit your message' }).count(), 0);
  await done();
});

test('reasoning is folded', async () => {
  const { page, done } = await open();
  await ask(page, 'Please think about it');
  const answer = lastAnswer(page);
  assert.equal(await answer.locator('.fold-body').count(), 0);
  assert.match(await answer.locator('.prose').innerText(), /^Keep the hot experts in memory/);
  await answer.getByText(/^Reasoned for /).click();
  await answer.getByText('The question is about tiers.').waitFor();
  await ask(page, 'Hello');
  assert.match(server.requests.at(-1).messages[1].reasoning_content, /^The question is about tiers/, 'the template gets it back');
  await done('chat-reasoning');
});

test('a tool call is shown, and its result goes back', async () => {
  const { page, done } = await open();
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  const tools = page.getByRole('textbox', { name: 'Tools' });
  await tools.fill('[{"type": "function"}]');
  await page.getByText('Each tool is {"type"').waitFor();
  await tools.fill('[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]');
  await page.getByRole('button', { name: 'Close' }).click();
  await ask(page, 'How is the weather?');
  const call = page.getByRole('region', { name: 'Call of weather' });
  assert.match(await call.innerText(), /"city": "Lyon"/);
  await page.getByRole('textbox', { name: 'Result of weather' }).fill('{"cold": true}');
  await page.getByRole('button', { name: 'Give the result' }).click();
  await page.getByText('The tool said: {"cold": true}').waitFor();
  const { messages } = server.requests.at(-1);
  assert.deepEqual(messages.slice(1), [
    { role: 'assistant', content: '', tool_calls: [{ id: 'call_0123456789abcdef', type: 'function', function: { name: 'weather', arguments: '{"city":"Lyon","days":2}' } }] },
    { role: 'tool', tool_call_id: 'call_0123456789abcdef', content: '{"cold": true}' },
  ]);
  await done('chat-tools');
});

test('settings are sent, and wrong ones are named', async () => {
  const { page, done } = await open();
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  const temperature = page.getByRole('textbox', { name: 'Temperature' });
  assert.equal(await temperature.getAttribute('placeholder'), '0.8', 'what the server does by itself');
  await temperature.fill('warm');
  await page.getByText('A number', { exact: true }).waitFor();
  assert.equal(await temperature.getAttribute('aria-invalid'), 'true');
  await temperature.fill('0.2');
  for (const [name, value] of [['Top p', '0.9'], ['Min p', '0.1'], ['Max tokens', '64'], ['Seed', '7']]) {
    await page.getByRole('textbox', { name, exact: true }).fill(value);
  }
  await page.getByRole('textbox', { name: 'System prompt of this conversation' }).fill('Be brief.');
  await page.keyboard.press('Escape');
  await ask(page, 'Hello');
  const { messages, temperature: t, top_p, min_p, max_tokens, seed } = server.requests.at(-1);
  assert.deepEqual({ t, top_p, min_p, max_tokens, seed }, { t: 0.2, top_p: 0.9, min_p: 0.1, max_tokens: 64, seed: 7 });
  assert.deepEqual(messages[0], { role: 'system', content: 'Be brief.' });
  await done();
});

test('conversations are kept, named, exported, imported and deleted', async () => {
  const { page, done } = await open();
  await ask(page, 'The first conversation');
  await page.keyboard.press('Control+Shift+O');
  await ask(page, 'The second conversation');
  await page.reload();
  await page.getByText('You said: The second conversation').waitFor();
  const list = page.getByRole('navigation', { name: 'Conversations' });
  await list.getByRole('button', { name: 'The first conversation', exact: true }).click();
  await page.getByText('You said: The first conversation').waitFor();

  await list.getByRole('button', { name: 'More for The first conversation' }).click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: 'New name' }).fill('A better name');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'A better name' }).waitFor();

  const exported = async (kind) => {
    await list.getByRole('button', { name: 'More for A better name' }).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: kind }).click()]);
    return { name: file.suggestedFilename(), path: await file.path() };
  };
  const markdown = await exported('Export as Markdown');
  assert.equal(markdown.name, 'A-better-name.md');
  assert.match(readFileSync(markdown.path, 'utf8'), /^# A better name\n\n## You\n\nThe first conversation\n\n## Answer\n\nYou said: The first/);
  const json = await exported('Export as JSON');

  await list.getByRole('button', { name: 'More for A better name' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByText('Deleted “A better name”.').waitFor();
  assert.equal(await list.getByRole('button', { name: 'A better name', exact: true }).count(), 0);
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('You said: The first conversation').waitFor();
  await list.getByRole('button', { name: 'More for A better name' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.reload();
  await page.getByRole('heading', { name: 'tales-30b-a3b' }).waitFor();
  assert.equal(await list.getByRole('listitem').count(), 1, 'deleted is deleted');

  await page.setInputFiles('input[type=file]', json.path);
  await page.getByText('You said: The first conversation').waitFor();
  await page.setInputFiles('input[type=file]', { name: 'no.json', mimeType: 'application/json', buffer: Buffer.from('{"a": 1}') });
  await page.getByText('The file holds no conversation that this page exported.').waitFor();
  await done();
});

test('errors are told in words, and tried again', async () => {
  const { page, done } = await open({}, [/Failed to load resource.*(400|429)/, /ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION/]);
  const cases = [
    ['busy', /5 requests are being served and the queue is full; try again later\. It says to try again in 7 s\./],
    ['overflow', /The prompt has 40000 tokens and a slot has room for 32768; shorten it/],
    ['midway', /The model file was cut short: layer 3 could not be read\./],
    ['cut', /The connection (was lost|ended) before the answer was whole\./],
    ['limit', /The answer ended at its limit/],
    ['whole context', /The context is full: no more fits/],
  ];
  for (const [what, words] of cases) {
    await ask(page, `Now ${what}`);
    assert.match(await lastAnswer(page).locator('.notice').innerText(), words);
  }
  assert.equal(await lastAnswer(page).getByRole('button', { name: 'Go on' }).count(), 0, 'what is full cannot go on');
  const count = server.requests.length;
  await lastAnswer(page).getByRole('button', { name: 'Answer again' }).click();
  await page.getByText('2 / 2').waitFor();
  await idle(page);
  assert.equal(server.requests.length, count + 1);
  await done('chat-errors');
});

test('a server that goes away is missed, and found again', async () => {
  const own = await start();
  const { page, done } = await openPage(browser, {}, [/ERR_CONNECTION_REFUSED/]);
  await page.goto(own.url);
  await page.getByRole('heading', { name: 'tales-30b-a3b' }).waitFor();
  const port = Number(new URL(own.url).port);
  await own.stop();
  await ask(page, 'Are you there?');
  assert.match(await lastAnswer(page).locator('.notice').innerText(), /^No server answers at http:\/\/127\.0\.0\.1:\d+\. Is moetier serve running\?$/);
  const again = await start({}, port);
  await lastAnswer(page).getByRole('button', { name: 'Try again' }).click();
  await page.getByText('You said: Are you there?').waitFor();
  await done();
});

test('a key is asked for and kept for the tab, or on the device', async () => {
  const own = await start({ key: 'secret' });
  const { page, context, done } = await openPage(browser, {}, [/401/]);
  await page.goto(own.url);
  await page.getByRole('alert').getByText('An API key is needed').waitFor();
  await page.getByRole('button', { name: 'Enter a key' }).click();
  const field = page.getByLabel('API key');
  await field.fill('wrong');
  await page.keyboard.press('Escape');
  await page.getByRole('alert').getByText('The API key is not one of this').waitFor();
  await page.getByRole('button', { name: 'Enter a key' }).click();
  await field.fill('secret');
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { name: 'tales-30b-a3b' }).waitFor();
  await ask(page, 'Hello');
  await page.getByText('You said: Hello').waitFor();
  assert.ok(!JSON.stringify(await page.evaluate(() => ({ ...localStorage }))).includes('secret'), 'for the tab only');
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByLabel('Keep it on this device').check();
  await page.keyboard.press('Escape');
  const second = await context.newPage();
  await second.goto(own.url);
  await second.getByRole('heading', { name: 'tales-30b-a3b' }).waitFor();
  await done();
});

test('the prompt\'s progress is shown', async () => {
  const { page, done } = await open();
  await send(page, 'A long prompt');
  await page.getByText(/Reading the prompt: \d+ of 1,200 tokens|Reading the prompt: 1,\d+ of 1,200 tokens/).waitFor();
  await idle(page);
  await page.getByText('A long prompt was read.').waitFor();
  await done();
});

for (const [name, options] of [
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['phone', { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true }],
]) {
  test(`accessible and whole: ${name}`, async () => {
    const { page, done } = await open(options);
    await page.fill('#composer', 'Please think about it');
    await page.getByRole('button', { name: 'Send' }).click();
    await lastAnswer(page).locator('.stats').waitFor();
    await page.fill('#composer', 'Tell me in markdown');
    await page.getByRole('button', { name: 'Send' }).click();
    await idle(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out at the side');
    assert.deepEqual(await accessibility(page), []);
    if (name === 'phone') {
      await page.getByRole('button', { name: 'Conversations' }).click();
      await page.getByRole('button', { name: 'New conversation' }).click();
      await page.getByText('It is kept in this browser alone').waitFor();
    }
    await page.getByRole('button', { name: 'Settings', exact: true }).click();
    assert.deepEqual(await accessibility(page), []);
    await page.keyboard.press('Escape');
    await done(`chat-${name}`);
  });
}

test('everything can be reached with the keyboard, and the focus is seen', async () => {
  const { page, done } = await open();
  await ask(page, 'Hello');
  await page.locator('#composer').focus();
  const seen = new Set();
  for (let i = 0; i < 40; i += 1) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return null;
      const style = getComputedStyle(e);
      return { name: e.getAttribute('aria-label') ?? e.textContent?.trim() ?? e.id, outlined: style.outlineStyle !== 'none' || e.id === 'composer' };
    });
    if (!at) continue;
    assert.ok(at.outlined, `the focus on “${at.name}” is not seen`);
    seen.add(at.name);
  }
  for (const wanted of ['New conversation', 'More for Hello', 'Monitor', 'Settings', 'Edit your message', 'Answer again']) {
    assert.ok(seen.has(wanted), `“${wanted}” is not reached; reached: ${[...seen].join(', ')}`);
  }
  await done();
});
