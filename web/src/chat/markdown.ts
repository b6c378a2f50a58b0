// Markdown to safe HTML, block by block, so that a growing answer is drawn anew only at its end.
import MarkdownIt from 'markdown-it';
import DOMPurify from 'dompurify';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import lua from 'highlight.js/lib/languages/lua';
import makefile from 'highlight.js/lib/languages/makefile';
import php from 'highlight.js/lib/languages/php';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';

const languages = {
  bash, c, cpp, csharp, css, diff, go, ini, java, javascript, json, kotlin, lua, makefile, php, python, ruby, rust, sql, swift,
  typescript, xml, yaml,
};
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

const longest = 50_000; // characters of code that are coloured

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false });
const escape = markdown.utils.escapeHtml;

markdown.renderer.rules.fence = (tokens, at) => {
  const token = tokens[at]!;
  const language = token.info.trim().split(/\s+/)[0] ?? '';
  const known = language !== '' && hljs.getLanguage(language) && token.content.length <= longest;
  const code = known ? hljs.highlight(token.content, { language, ignoreIllegals: true }).value : escape(token.content);
  return (
    `<div class="code"><div class="code-head"><span>${escape(language) || 'text'}</span>` +
    `<button type="button" class="button bare little" data-copy="">Copy</button></div>` +
    `<pre tabindex="0"><code>${code}</code></pre></div>`
  );
};
markdown.renderer.rules.code_block = (tokens, at, options, env, self) => {
  tokens[at]!.info = '';
  return markdown.renderer.rules.fence!(tokens, at, options, env, self);
};
markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
markdown.renderer.rules.table_close = () => '</table></div>';
// Fetching a picture would tell its host that someone read this. It is a link instead.
markdown.renderer.rules.image = (tokens, at) => {
  const source = String(tokens[at]!.attrGet('src') ?? '');
  return `<a href="${escape(source)}" target="_blank" rel="noopener noreferrer nofollow">${escape(tokens[at]!.content || source)}</a>`;
};
markdown.renderer.rules.link_open = (tokens, at, options, _env, self) => {
  tokens[at]!.attrSet('target', '_blank');
  tokens[at]!.attrSet('rel', 'noopener noreferrer nofollow');
  return self.renderToken(tokens, at, options);
};

const pure = { USE_PROFILES: { html: true }, ADD_ATTR: ['target', 'data-copy', 'tabindex'], FORBID_TAGS: ['style', 'form', 'input', 'img', 'svg'], FORBID_ATTR: ['id', 'name'] };

const drawn = new Map<string, string>(); // by source, the most recent last
const kept = 400;

function cached(source: string, make: () => string): string {
  const html = drawn.get(source) ?? make();
  drawn.delete(source);
  drawn.set(source, html);
  if (drawn.size > kept) drawn.delete(drawn.keys().next().value!);
  return html;
}

/** HTML of each top-level block of the text. */
export function renderBlocks(text: string): string[] {
  const env: Parameters<typeof markdown.parse>[1] & object = {};
  const tokens = markdown.parse(text, env);
  const lines = text.split('\n');
  // A definition of a link may stand anywhere and change any block.
  const definitions = Object.keys(env.references ?? {}).length > 0;
  const out: string[] = [];
  for (let begin = 0, at = 0; at < tokens.length; at += 1) {
    const token = tokens[at]!;
    if (token.level !== 0 || token.nesting === 1) continue;
    const block = tokens.slice(begin, at + 1);
    begin = at + 1;
    const make = () => DOMPurify.sanitize(markdown.renderer.render(block, markdown.options, env), pure);
    const map = block[0]!.map;
    out.push(map && !definitions ? cached(lines.slice(map[0], map[1]).join('\n'), make) : make());
  }
  return out;
}
