import type { RefObject } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { download } from '../lib/copy.ts';
import { useStore } from '../lib/store.ts';
import { Icon, IconButton } from '../ui/parts.tsx';
import { drop, rename, show, startNew, state, take, toast } from './state.ts';
import { asMarkdown, imported, type Conversation } from './tree.ts';

function fileName(conversation: Conversation, ending: string): string {
  const stem = conversation.title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60);
  return `${stem || 'conversation'}.${ending}`;
}

function Menu(props: { conversation: Conversation; onRename: () => void; onClose: () => void }) {
  const { conversation, onClose } = props;
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    menu.current?.querySelector('button')?.focus();
    const away = (event: Event) => {
      if (!menu.current?.parentElement?.contains(event.target as Node)) onClose();
    };
    document.addEventListener('pointerdown', away);
    return () => document.removeEventListener('pointerdown', away);
  }, []);
  const move = (event: KeyboardEvent) => {
    const items = [...menu.current!.querySelectorAll('button')];
    const at = items.indexOf(document.activeElement as HTMLButtonElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      items[(at + step + items.length) % items.length]?.focus();
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      onClose();
      menu.current?.parentElement?.querySelector<HTMLElement>('[aria-haspopup]')?.focus();
    }
  };
  const item = (icon: Parameters<typeof Icon>[0]['name'], text: string, run: () => void, kind = '') => (
    <button type="button" role="menuitem" class={`button bare ${kind}`} onClick={() => (onClose(), run())}>
      <Icon name={icon} />
      {text}
    </button>
  );
  return (
    <div class="menu" role="menu" ref={menu} onKeyDown={move}>
      {item('pencil', 'Rename', props.onRename)}
      {item('save', 'Export as Markdown', () => download(fileName(conversation, 'md'), 'text/markdown', asMarkdown(conversation)))}
      {item('save', 'Export as JSON', () => download(fileName(conversation, 'json'), 'application/json', JSON.stringify(conversation, null, 1)))}
      {item('trash', 'Delete', () => drop(conversation), 'danger')}
    </div>
  );
}

function Entry(props: { conversation: Conversation; current: boolean; busy: boolean; onPick: () => void }) {
  const { conversation } = props;
  const [menu, setMenu] = useState(false);
  const [renaming, setRenaming] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const given = useRef(false);
  useLayoutEffect(() => {
    if (renaming) input.current?.select();
  }, [renaming]);
  if (renaming) {
    const done = (keepIt: boolean) => {
      if (given.current) return;
      given.current = true;
      if (keepIt) rename(conversation, input.current!.value);
      setRenaming(false);
    };
    return (
      <li class="entry">
        <input
          class="input"
          ref={input}
          aria-label="New name"
          defaultValue={conversation.title}
          onBlur={() => done(true)}
          onKeyDown={(event) => {
            if (event.key === 'Enter') done(true);
            if (event.key === 'Escape') {
              event.stopPropagation();
              done(false);
            }
          }}
        />
      </li>
    );
  }
  return (
    <li class={`entry ${props.current ? 'current' : ''}`}>
      <button type="button" class="entry-name cut" aria-current={props.current ? 'page' : undefined} onClick={props.onPick} title={conversation.title}>
        {props.busy && <span class="dot" role="img" aria-label="Being answered" />}
        {conversation.title}
      </button>
      <IconButton
        icon="more"
        label={`More for ${conversation.title}`}
        kind="bare little"
        aria-haspopup="menu"
        aria-expanded={menu}
        onClick={() => setMenu(!menu)}
      />
      {menu && (
        <Menu
          conversation={conversation}
          onClose={() => setMenu(false)}
          onRename={() => {
            given.current = false;
            setRenaming(true);
          }}
        />
      )}
    </li>
  );
}

export function Sidebar(props: { rootRef: RefObject<HTMLElement | null>; closed: boolean; open: boolean; onClose: () => void }) {
  const s = useStore(state);
  const [search, setSearch] = useState('');
  const file = useRef<HTMLInputElement>(null);
  const words = search.trim().toLowerCase();
  const found = s.conversations.filter(
    (c) =>
      words === '' ||
      c.title.toLowerCase().includes(words) ||
      Object.values(c.messages).some((m) => m.content.toLowerCase().includes(words)),
  );
  const read = async (input: HTMLInputElement) => {
    const chosen = input.files?.[0];
    if (!chosen) return;
    try {
      take(imported(await chosen.text()));
    } catch (error) {
      toast((error as Error).message);
    }
    input.value = '';
  };
  return (
    <nav class={`side ${props.open ? 'open' : ''}`} ref={props.rootRef} aria-label="Conversations" inert={props.closed}>
      <div class="row side-head">
        <button
          type="button"
          class="button grow"
          onClick={() => {
            startNew();
            props.onClose();
            document.getElementById('composer')?.focus();
          }}
        >
          <Icon name="plus" />
          New conversation
        </button>
        {props.open && <IconButton icon="close" label="Close" onClick={props.onClose} />}
      </div>
      {s.conversations.length > 6 && (
        <input
          class="input"
          type="search"
          placeholder="Search"
          aria-label="Search conversations"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      )}
      <ul class="entries">
        {found.map((c) => (
          <Entry
            key={c.id}
            conversation={c}
            current={c.id === s.current.id}
            busy={s.running.has(c.id)}
            onPick={() => {
              show(c);
              props.onClose();
            }}
          />
        ))}
      </ul>
      {found.length === 0 && (
        <p class="muted small side-note">{words ? 'Nothing found.' : 'Conversations stay in this browser and are listed here.'}</p>
      )}
      <div class="side-foot">
        <button type="button" class="button bare little" onClick={() => file.current?.click()}>
          <Icon name="open" />
          Import
        </button>
        <input ref={file} type="file" accept=".json,application/json" hidden onChange={(event) => void read(event.currentTarget)} />
      </div>
    </nav>
  );
}
