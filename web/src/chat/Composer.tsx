import { useEffect, useRef } from 'preact/hooks';
import { useStore } from '../lib/store.ts';
import { Icon } from '../ui/parts.tsx';
import { send, state, stop } from './state.ts';
import { openCalls, path, type Conversation } from './tree.ts';

/** As high as its text, up to what the style allows. */
export function fit(area: HTMLTextAreaElement): void {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + 2}px`;
}

const coarse = matchMedia('(pointer: coarse)');

/** Enter sends, unless it is typed with Shift, on a touch screen, or to finish a word of an input method. */
export function sends(event: KeyboardEvent): boolean {
  if (event.key !== 'Enter' || event.isComposing) return false;
  return event.ctrlKey || event.metaKey || (!event.shiftKey && !coarse.matches);
}

export function Composer({ conversation }: { conversation: Conversation }) {
  const s = useStore(state);
  const area = useRef<HTMLTextAreaElement>(null);
  const running = s.running.get(conversation.id);
  const missing = running ? 0 : openCalls(path(conversation)).length;
  const text = s.drafts.get(conversation.id) ?? '';
  useEffect(() => {
    fit(area.current!);
    if (!coarse.matches) area.current!.focus();
  }, []);
  const write = (value: string) => {
    s.drafts.set(conversation.id, value);
    state.changed();
  };
  const go = () => {
    if (running || text.trim() === '') return;
    write('');
    send(conversation, text.trim());
    requestAnimationFrame(() => area.current && fit(area.current));
  };
  const keyed = (event: KeyboardEvent) => {
    if (sends(event)) {
      event.preventDefault();
      go();
    } else if (event.key === 'ArrowUp' && text === '' && !running) {
      const own = document.querySelectorAll<HTMLElement>('[data-edit]');
      if (own.length > 0) event.preventDefault();
      own[own.length - 1]?.click();
    }
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      <div class="composer-box">
        <label class="hush" for="composer">
          Message
        </label>
        <textarea
          id="composer"
          ref={area}
          rows={1}
          placeholder={missing ? 'Give the tool’s result above, or write something else' : 'Write a message'}
          value={text}
          onInput={(event) => {
            write(event.currentTarget.value);
            fit(event.currentTarget);
          }}
          onKeyDown={keyed}
        />
        {running ? (
          <button type="button" class="button round" onClick={() => stop(conversation)} aria-label="Stop" title="Stop (Escape)">
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="button main round" disabled={text.trim() === ''} aria-label="Send" title="Send (Enter)">
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
