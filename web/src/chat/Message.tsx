import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { copyText } from '../lib/copy.ts';
import { number, plural, seconds } from '../lib/format.ts';
import { useStore } from '../lib/store.ts';
import { Icon, IconButton } from '../ui/parts.tsx';
import { fit, sends } from './Composer.tsx';
import { renderBlocks } from './markdown.ts';
import { edit, pick, regenerate, result, resume, state, type Running } from './state.ts';
import type { Conversation, Message, ToolCall } from './tree.ts';

interface Props {
  conversation: Conversation;
  message: Message;
  family: Message[];
  running: Running | undefined;
  busy: boolean;
  last: boolean;
  openCalls: ToolCall[];
}

function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => renderBlocks(text), [text]);
  return (
    <div class="prose">
      {blocks.map((html, i) => (
        <div key={i} dangerouslySetInnerHTML={{ __html: html }} />
      ))}
    </div>
  );
}

function Reasoning({ message, live }: { message: Message; live: boolean }) {
  const [open, setOpen] = useState(false);
  if (!message.reasoning) return null;
  const title = live ? 'Reasoning…' : message.thought ? `Reasoned for ${seconds(message.thought)}` : 'Reasoning';
  return (
    <details class="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="right" />
        <span class={live ? 'pulse' : ''}>{title}</span>
      </summary>
      {open && (
        <div class="fold-body muted">
          <Markdown text={message.reasoning} />
        </div>
      )}
    </details>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Call(props: { call: ToolCall; waiting: boolean; onResult: (text: string) => void }) {
  const [text, setText] = useState('');
  return (
    <section class="call" aria-label={`Call of ${props.call.name}`}>
      <div class="code-head">
        <span>
          Calls <strong>{props.call.name || '…'}</strong>
        </span>
      </div>
      <pre tabIndex={0}>
        <code>{pretty(props.call.arguments) || '…'}</code>
      </pre>
      {props.waiting && (
        <form
          class="call-form"
          onSubmit={(event) => {
            event.preventDefault();
            props.onResult(text);
          }}
        >
          <textarea
            class="input mono"
            rows={2}
            aria-label={`Result of ${props.call.name}`}
            placeholder="What the tool answers"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button class="button">Give the result</button>
        </form>
      )}
    </section>
  );
}

function Editor(props: { text: string; label: string; onDone: (text: string | null) => void }) {
  const [text, setText] = useState(props.text);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const element = area.current!;
    fit(element);
    element.focus();
    element.setSelectionRange(element.value.length, element.value.length);
  }, []);
  const done = () => text.trim() !== '' && props.onDone(text.trim());
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        done();
      }}
    >
      <textarea
        class="input"
        ref={area}
        aria-label={props.label}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          fit(event.currentTarget);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Escape') {
            event.stopPropagation();
            props.onDone(null);
          } else if (sends(event)) {
            event.preventDefault();
            done();
          }
        }}
      />
      <div class="row">
        <button class="button main" disabled={text.trim() === ''}>
          Send
        </button>
        <button type="button" class="button" onClick={() => props.onDone(null)}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  return (
    <IconButton
      icon={done ? 'check' : 'copy'}
      label={label}
      kind="bare little"
      onClick={() => {
        void copyText(text).then((ok) => {
          setDone(ok);
          setTimeout(() => setDone(false), 1500);
        });
      }}
    />
  );
}

function Versions({ conversation, message, family, busy }: Props) {
  if (family.length < 2) return null;
  const at = family.indexOf(message);
  return (
    <span class="versions small muted number" role="group" aria-label="Versions">
      <IconButton icon="left" label="Version before" kind="bare little" disabled={busy || at === 0} onClick={() => pick(conversation, family[at - 1]!)} />
      {at + 1} / {family.length}
      <IconButton icon="right" label="Next version" kind="bare little" disabled={busy || at + 1 === family.length} onClick={() => pick(conversation, family[at + 1]!)} />
    </span>
  );
}

/** Tokens and speed of a finished answer. */
function Numbers({ message }: { message: Message }) {
  const stats = message.stats;
  if (!stats) return null;
  const parts = [plural(stats.tokens, 'token')];
  if (stats.speed > 0) parts.push(`${number(stats.speed)} tok/s`);
  const cached = stats.cachedTokens > 0 ? `, ${stats.cachedTokens.toLocaleString('en')} of them kept` : '';
  const prompt = `Prompt of ${plural(stats.promptTokens, 'token')}${cached}` + (stats.promptSpeed > 0 ? `, ${number(stats.promptSpeed)} tok/s` : '');
  if (stats.first > 0) parts.push(`first after ${seconds(stats.first)}`);
  return (
    <span class="small muted number stats" title={prompt}>
      {parts.join(' · ')}
      <span class="only-wide"> · prompt {stats.promptTokens.toLocaleString('en')}{stats.cachedTokens > 0 && ` (${stats.cachedTokens.toLocaleString('en')} kept)`}</span>
    </span>
  );
}

/** What is happening while one waits. */
function Live({ running }: { running: Running }) {
  const { prompt, pieces, began } = running.progress;
  if (pieces === 0) {
    const share = prompt && prompt.total > 0 ? prompt.done / prompt.total : 0;
    return (
      <div class="small muted live">
        <span class="pulse">{prompt ? `Reading the prompt: ${prompt.done.toLocaleString('en')} of ${plural(prompt.total, 'token')}` : 'Waiting for the server'}</span>
        {prompt && <progress value={share} max={1} aria-label="Prompt" />}
      </div>
    );
  }
  const time = (performance.now() - began) / 1000;
  return (
    <span class="small muted number pulse">
      about {plural(pieces, 'token')}
      {time > 0.5 && pieces > 2 && ` · ${number((pieces - 1) / time)} tok/s`}
    </span>
  );
}

const ends: Record<string, string> = {
  length: 'The answer ended at its limit, max tokens.',
  full: 'The context is full: no more fits into this conversation.',
  stopped: 'Stopped.',
};

function Answer(props: Props) {
  const { conversation, message, running, busy, last, openCalls } = props;
  const thinking = running !== undefined && message.content === '' && !message.calls?.length;
  const context = useStore(state).props?.default_generation_settings?.n_ctx ?? Infinity;
  const full = message.finish === 'length' && (message.stats?.promptTokens ?? 0) + (message.stats?.tokens ?? 0) >= context;
  const note = running ? '' : (message.error ?? ends[full ? 'full' : (message.finish ?? '')] ?? '');
  const canResume = last && !busy && !full && !message.calls?.length && message.content !== '' && ['length', 'stopped', 'error'].includes(message.finish ?? '');
  return (
    <li class="message answer" aria-label="Answer" aria-busy={running !== undefined}>
      <Reasoning message={message} live={thinking} />
      {message.content !== '' && <Markdown text={message.content} />}
      {message.calls?.map((call, i) => (
        <Call key={i} call={call} waiting={openCalls.includes(call)} onResult={(text) => result(conversation, call.id, text)} />
      ))}
      {note && <div class={`notice ${message.error ? 'bad' : ''}`}>{note}</div>}
      <div class="row wrap tools">
        {running ? (
          <Live running={running} />
        ) : (
          <>
            {message.content !== '' && <Copy text={message.content} label="Copy answer" />}
            <IconButton icon="again" label={message.error ? 'Try again' : 'Answer again'} kind="bare little" disabled={busy} onClick={() => regenerate(conversation, message)} />
            {canResume && (
              <button type="button" class="button bare little" onClick={() => resume(conversation, message)}>
                <Icon name="forward" />
                Go on
              </button>
            )}
            <Versions {...props} />
            <Numbers message={message} />
          </>
        )}
      </div>
    </li>
  );
}

function Own(props: Props) {
  const { conversation, message, busy } = props;
  const [editing, setEditing] = useState(false);
  const tool = message.role === 'tool';
  const name = tool ? 'Tool result' : 'Your message';
  if (editing) {
    return (
      <li class="message own editing" aria-label={name}>
        <Editor
          text={message.content}
          label={`Edit ${name.toLowerCase()}`}
          onDone={(text) => {
            setEditing(false);
            if (text !== null && !busy) edit(conversation, message, text);
          }}
        />
      </li>
    );
  }
  return (
    <li class={`message own ${tool ? 'tool' : ''}`} aria-label={name}>
      {tool && <div class="small muted">Result</div>}
      <div class={`bubble ${tool ? 'mono' : ''}`}>{message.content}</div>
      <div class="row tools">
        <Versions {...props} />
        <Copy text={message.content} label={`Copy ${name.toLowerCase()}`} />
        <IconButton
          icon="pencil"
          label={`Edit ${name.toLowerCase()}`}
          kind="bare little"
          disabled={busy}
          data-edit={tool ? undefined : ''}
          onClick={() => setEditing(true)}
        />
      </div>
    </li>
  );
}

export function MessageView(props: Props) {
  return props.message.role === 'assistant' ? <Answer {...props} /> : <Own {...props} />;
}
