// A headless Chromium with pages that fail a test on any error of their own.
import assert from 'node:assert/strict';
import { accessSync, constants, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { chromium } from 'playwright-core';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** $CHROMIUM, or what is on the path. */
export function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    for (const name of names) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // Not this one.
      }
    }
  }
  return null;
}

const pictures = process.env.MOETIER_SCREENSHOTS ?? join(import.meta.dirname, '..', '..', 'build', 'screenshots');
mkdirSync(pictures, { recursive: true });

export async function launch() {
  // The sandbox of Chromium cannot be had as root, nor in most containers; it opens nothing but our own pages here.
  return chromium.launch({ executablePath: findChromium(), args: ['--no-sandbox', '--disable-gpu'] });
}

/** A page in a context of its own. `expected`: patterns of console errors that belong to the test. */
export async function openPage(browser, options = {}, expected = []) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const errors = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !expected.some((p) => p.test(message.text()))) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error.stack ?? error)));
  return {
    context, page, errors,
    async done(name) {
      await page.evaluate(() => scrollTo(0, 0));
      if (name) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
      assert.deepEqual(errors, [], 'errors on the page');
      await context.close();
    },
  };
}

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** What axe finds wrong with the page as it is, WCAG 2.1 A and AA. The page's policy lets no script in but by the debugger. */
export async function accessibility(page) {
  const { readFileSync } = await import('node:fs');
  await page.evaluate(readFileSync(axe, 'utf8'));
  const found = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  return found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160)).join(' | ')}`);
}
