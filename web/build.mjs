// Builds web/dist: one HTML file per page with its script, style and icon inside. `node build.mjs --check` builds in memory and
// says whether dist is what the sources build. The licences of what is bundled go into THIRD-PARTY.md and each page's head.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const pages = [
  // The chat talks to the server it came from and to nobody else, whatever a model writes.
  { file: 'index.html', entry: 'src/chat/main.tsx', title: 'Moetier chat', connect: "'self'" },
  // The monitor may watch another server.
  { file: 'monitor.html', entry: 'src/monitor/main.tsx', title: 'Moetier monitor', connect: '*' },
];

const mit = /Permission is hereby granted[\s\S]*?SOFTWARE\./;
const read = (...path) => readFileSync(join(here, ...path), 'utf8');

/** The packages whose code is in a bundle: name, version, licence, its text, who holds the copyright. */
function packagesIn(metafile) {
  const names = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match) names.add(match[1]);
  }
  return [...names].sort().map((name) => {
    const meta = JSON.parse(read('node_modules', name, 'package.json'));
    const file = readdirSync(join(here, 'node_modules', name)).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no licence file`);
    const text = read('node_modules', name, file).replace(/\r\n/g, '\n').trim();
    const holders = [...new Set(text.split('\n').map((l) => l.trim()).filter((l) => /^Copyright (\(c\)|©|[0-9])/i.test(l)))];
    return { name, version: meta.version, licence: meta.license, homepage: meta.homepage ?? '', text, holders };
  });
}

function notice(packages) {
  const lines = ['Part of Moetier; built by web/build.mjs from web/src. Contains:'];
  for (const p of packages) lines.push(`  ${p.name} ${p.version}, ${p.licence}. ${p.holders.join('; ')}`.trimEnd());
  const texts = new Map();
  for (const p of packages) {
    const short = mit.exec(p.text)?.[0] ?? (p.text.length < 2000 ? p.text : '');
    if (short) texts.set(short.replace(/\s+/g, ' '), [...(texts.get(short.replace(/\s+/g, ' ')) ?? []), p.name]);
    else lines.push(`  The licence of ${p.name} is in web/THIRD-PARTY.md and at https://www.apache.org/licenses/LICENSE-2.0`);
  }
  for (const [text, names] of texts) lines.push(`${names.join(', ')}: ${text}`);
  return lines.join('\n').replace(/--+/g, '-');
}

async function bundle(page) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [page.entry],
    bundle: true,
    write: false,
    minify: true,
    metafile: true,
    format: 'iife',
    target: ['chrome115', 'firefox121', 'safari17'],
    charset: 'utf8',
    legalComments: 'none',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    outdir: 'out',
    logLevel: 'warning',
  });
  const output = (ending) => result.outputFiles.find((f) => f.path.endsWith(ending)).text.trim();
  // Inside a script element "<!--" would begin a comment of sorts; in the strings and patterns it is in, \x21 is the same.
  const script = output('.js').replaceAll('<!--', '<\\x21--');
  const style = output('.css');
  if (/<\/script/i.test(script)) throw new Error(`${page.entry}: the script would end its element`);
  const hash = createHash('sha256').update(script).digest('base64');
  const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; ` +
      `connect-src ${page.connect}; base-uri 'none'; form-action 'none'`;
  const packages = packagesIn(result.metafile);
  const values = {
    NOTICE: notice(packages), POLICY: policy, TITLE: page.title,
    ICON: encodeURIComponent(read('src', 'icon.svg').trim()), STYLE: style, SCRIPT: script,
  };
  const html = read('src', 'page.html').replace(/%([A-Z]+)%/g, (_, name) => values[name]);
  return { html, packages };
}

function thirdParty(packages) {
  const parts = ['# What the pages contain of others', '',
    'Written by `web/build.mjs`. The two files in `web/dist` contain code of these packages.', ''];
  for (const p of packages) parts.push(`- ${p.name} ${p.version} (${p.licence}) ${p.homepage}`.trimEnd());
  for (const p of packages) parts.push('', `## ${p.name}`, '', '```', p.text, '```');
  return parts.join('\n') + '\n';
}

const built = await Promise.all(pages.map(bundle));
const everything = new Map(built.flatMap((b) => b.packages).map((p) => [p.name, p]));
const outputs = pages.map((page, i) => [join('dist', page.file), built[i].html]);
outputs.push(['THIRD-PARTY.md', thirdParty([...everything.values()].sort((a, b) => (a.name < b.name ? -1 : 1)))]);

if (process.argv.includes('--check')) {
  const stale = outputs.filter(([file, text]) => !existsSync(join(here, file)) || read(file) !== text).map(([file]) => file);
  if (stale.length > 0) {
    console.error(`web: ${stale.join(', ')}: not what the sources build; run 'npm run build' in web/ and commit the result`);
    process.exit(1);
  }
  console.log('web: dist is what the sources build');
} else {
  for (const [file, text] of outputs) {
    writeFileSync(join(here, file), text);
    console.log(`web/${file}  ${(text.length / 1024).toFixed(0)} KiB`);
  }
}
