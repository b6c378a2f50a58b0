// The pages out of a running `moetier serve` with a small model that only continues text: $MOETIER_URL, $MOETIER_KEY.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { launch, openPage } from './browser.mjs';

const url = process.env.MOETIER_URL;
const key = process.env.MOETIER_KEY;
let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const dist = (name) => readFileSync(join(import.meta.dirname, '..', '..', 'web', 'dist', name), 'utf8');

test('the pages in the program are those of web/dist', async () => {
  assert.equal(await (await fetch(`${url}/`)).text(), dist('index.html'));
  const monitor = await fetch(`${url}/monitor`);
  assert.equal(await monitor.text(), dist('monitor.html'));
  assert.match(monitor.headers.get('content-type'), /^text\/html; charset=utf-8$/);
});

test('a chat, seen by the monitor', async () => {
  const { page, context, done } = await openPage(browser, {}, [/401/]);
  await page.goto(url);
  await page.getByRole('button', { name: 'Enter a key' }).click();
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('Keep it on this device').check();
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { name: 'tales' }).waitFor();
  const monitor = await context.newPage();
  const errors = [];
  monitor.on('pageerror', (error) => errors.push(String(error)));
  await monitor.addInitScript(() => localStorage.setItem('moetier.monitor', '{"interval":0.5,"window":60}'));
  await monitor.goto(`${url}/monitor`);
  await monitor.locator('.tile').first().waitFor();
  await page.bringToFront();

  // A bounded answer whose numbers are known.
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByRole('textbox', { name: 'Max tokens' }).fill('40');
  await page.getByRole('textbox', { name: 'Seed' }).fill('5');
  await page.keyboard.press('Escape');
  await page.fill('#composer', 'Once upon a time');
  await page.press('#composer', 'Enter');
  const answer = page.getByRole('listitem', { name: 'Answer' });
  await answer.locator('.stats').waitFor();
  assert.match(await answer.locator('.stats').innerText(), /^40 tokens · [\d.,]+ tok\/s · first after .* · prompt \d+/);
  assert.match(await answer.locator('.notice').innerText(), /ended at its limit/);
  const text = await answer.locator('.prose').innerText();
  assert.ok(text.length > 40);

  // The same seed again is the same answer.
  await answer.getByRole('button', { name: 'Answer again' }).click();
  await page.getByText('2 / 2').waitFor();
  await answer.locator('.stats').waitFor();
  assert.equal(await answer.locator('.prose').innerText(), text);

  // One without an end is stopped, and the server takes note.
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByRole('textbox', { name: 'Max tokens' }).fill('');
  await page.keyboard.press('Escape');
  await page.fill('#composer', 'And then');
  await page.press('#composer', 'Enter');
  await page.getByText(/about \d+ tokens/).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('main').getByText('Stopped.').waitFor();

  await monitor.bringToFront();
  const requests = monitor.getByRole('region', { name: 'Requests' });
  await requests.getByRole('row', { name: 'Ended: length 2' }).waitFor();
  await requests.getByRole('row', { name: 'Ended: cancelled 1' }).waitFor();
  const times = monitor.getByRole('region', { name: 'Where a token’s time goes' });
  await times.getByText('A token, on average').waitFor();
  const shares = (await times.locator('tbody td:nth-child(3)').allInnerTexts()).map((t) => parseFloat(t));
  assert.ok(shares.length === 6 && Math.abs(shares.reduce((a, b) => a + b) - 100) < 0.5, `shares: ${shares}`);
  assert.match(await monitor.locator('.tile', { hasText: 'Hit ratio' }).innerText(), /[\d.]+ % since the start/);
  await monitor.getByText('Totals by layer').click();
  assert.ok((await monitor.getByRole('region', { name: 'Hits by layer' }).locator('tbody tr').count()) > 1);
  await monitor.screenshot({ path: join(import.meta.dirname, '..', '..', 'build', 'screenshots', 'served-monitor.png'), fullPage: true });
  assert.deepEqual(errors, []);
  await done('served-chat');
});
