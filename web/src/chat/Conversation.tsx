import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { copyText } from '../lib/copy.ts';
import { useStore } from '../lib/store.ts';
import { Icon } from '../ui/parts.tsx';
import { MessageView } from './Message.tsx';
import { openSheet, state } from './state.ts';
import { openCalls, path, siblings, type Conversation as Talk } from './tree.ts';

/** The copy buttons of code, wherever they are in the HTML of an answer. */
async function copyCode(event: MouseEvent): Promise<void> {
  const button = (event.target as Element).closest?.('[data-copy]');
  if (!button) return;
  const code = button.closest('.code')?.querySelector('code')?.textContent ?? '';
  button.textContent = (await copyText(code)) ? 'Copied' : 'Not copied';
  setTimeout(() => (button.textContent = 'Copy'), 1500);
}

function Empty() {
  const s = useStore(state);
  const context = s.props?.default_generation_settings?.n_ctx;
  return (
    <div class="empty">
      <h2>{s.props?.model_alias ?? 'Moetier'}</h2>
      <p class="muted">
        {context
          ? `A conversation may be ${context.toLocaleString('en')} tokens long. It is kept in this browser alone.`
          : 'Conversations are kept in this browser alone.'}
      </p>
      <button type="button" class="button" onClick={() => openSheet('settings')}>
        <Icon name="gear" />
        System prompt and sampling
      </button>
    </div>
  );
}

export function Conversation({ conversation }: { conversation: Talk }) {
  const s = useStore(state);
  const view = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  const [away, setAway] = useState(false);
  const messages = path(conversation);
  const running = s.running.get(conversation.id);
  const waiting = running ? [] : openCalls(messages);

  // The end stays in sight while an answer grows, until someone scrolls up to read.
  useLayoutEffect(() => {
    const element = view.current!;
    if (follow.current) element.scrollTop = element.scrollHeight;
  });
  useEffect(() => {
    follow.current = true;
    setAway(false);
    view.current!.scrollTop = view.current!.scrollHeight;
  }, [running?.message.id]);
  const scrolled = () => {
    const element = view.current!;
    const near = element.scrollHeight - element.scrollTop - element.clientHeight < 60;
    follow.current = near;
    if (near === away) setAway(!near);
  };
  return (
    <div class="view-holder">
      <div class="view" ref={view} onScroll={scrolled} onClick={(event) => void copyCode(event)} tabIndex={-1}>
        {messages.length === 0 ? (
          <Empty />
        ) : (
          <ol class="messages">
            {messages.map((message, i) => (
              <MessageView
                key={message.id}
                conversation={conversation}
                message={message}
                family={siblings(conversation, message.parent)}
                running={running?.message === message ? running : undefined}
                busy={running !== undefined}
                last={i === messages.length - 1}
                openCalls={waiting}
              />
            ))}
          </ol>
        )}
      </div>
      {away && (
        <button
          type="button"
          class="button round to-end"
          aria-label="To the end"
          title="To the end"
          onClick={() => view.current!.scrollTo({ top: view.current!.scrollHeight, behavior: 'smooth' })}
        >
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}
