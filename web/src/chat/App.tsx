import { useEffect, useRef, useState } from 'preact/hooks';
import { useStore } from '../lib/store.ts';
import { Icon, IconButton } from '../ui/parts.tsx';
import { Composer } from './Composer.tsx';
import { Conversation } from './Conversation.tsx';
import { SettingsSheet } from './SettingsSheet.tsx';
import { Sidebar } from './Sidebar.tsx';
import { hideToast, meet, openSheet, startNew, state, stop } from './state.ts';

function Header(props: { onMenu: () => void; menuOpen: boolean }) {
  const s = useStore(state);
  const model = s.props?.model_alias;
  return (
    <header class="top">
      <IconButton icon="menu" label="Conversations" class="button bare square only-narrow" aria-expanded={props.menuOpen} onClick={props.onMenu} />
      <div class="grow">
        <h1 class="cut">{s.current.title}</h1>
        {model && (
          <div class="muted small cut" title={s.props?.model_path}>
            {model}
          </div>
        )}
      </div>
      <a class="button bare" href="/monitor" title="Monitor">
        <Icon name="chart" />
        <span class="only-wide">Monitor</span>
      </a>
      <button type="button" class="button bare" onClick={() => openSheet('settings')} title="Settings" aria-label="Settings">
        <Icon name="gear" />
        <span class="only-wide">Settings</span>
      </button>
    </header>
  );
}

function ServerTrouble() {
  const { trouble } = useStore(state);
  if (!trouble) return null;
  return (
    <div class="notice bad row wrap band" role="alert">
      <span class="grow">
        {location.protocol === 'file:' ? 'The chat works from the server itself: open its address instead of this file.' : trouble.message}
      </span>
      {trouble.kind === 'key' && (
        <button type="button" class="button little" onClick={() => openSheet('key')}>
          Enter a key
        </button>
      )}
      <button type="button" class="button little" onClick={() => void meet()}>
        Try again
      </button>
    </div>
  );
}

function Toast() {
  const { toast } = useStore(state);
  return (
    <div class="toasts" role="status">
      {toast && (
        <div class="toast row">
          <span class="grow">{toast.text}</span>
          {toast.undo && (
            <button type="button" class="button little" onClick={toast.undo}>
              Undo
            </button>
          )}
          <IconButton icon="close" label="Dismiss" kind="bare little" onClick={hideToast} />
        </div>
      )}
    </div>
  );
}

/** Stop by Escape, a new conversation by Ctrl+Shift+O. */
function useShortcuts() {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (document.querySelector('dialog[open]')) return;
      const current = state.value.current;
      if (event.key === 'Escape' && state.value.running.has(current.id)) {
        event.preventDefault();
        stop(current);
      } else if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === 'o') {
        event.preventDefault();
        startNew();
        document.getElementById('composer')?.focus();
      }
    };
    addEventListener('keydown', listen);
    return () => removeEventListener('keydown', listen);
  }, []);
}

export function App() {
  const s = useStore(state);
  const [menu, setMenu] = useState(false);
  const [narrow, setNarrow] = useState(() => matchMedia('(max-width: 800px)').matches);
  const side = useRef<HTMLElement>(null);
  useShortcuts();
  useEffect(() => {
    const query = matchMedia('(max-width: 800px)');
    const listen = () => setNarrow(query.matches);
    query.addEventListener('change', listen);
    return () => query.removeEventListener('change', listen);
  }, []);
  useEffect(() => {
    document.title = s.current.title === 'New conversation' ? 'Moetier chat' : `${s.current.title} – Moetier`;
  }, [s.current.title]);
  const closed = narrow && !menu;
  return (
    <div class="app" onKeyDown={(event) => event.key === 'Escape' && menu && setMenu(false)}>
      <Sidebar
        rootRef={side}
        closed={closed}
        open={narrow && menu}
        onClose={() => setMenu(false)}
      />
      {narrow && menu && <div class="shade" onClick={() => setMenu(false)} />}
      <main class="stage" inert={narrow && menu}>
        <Header
          menuOpen={menu}
          onMenu={() => {
            setMenu(true);
            requestAnimationFrame(() => side.current?.querySelector<HTMLElement>('button')?.focus());
          }}
        />
        <ServerTrouble />
        <Conversation key={s.current.id} conversation={s.current} />
        <Composer key={`composer ${s.current.id}`} conversation={s.current} />
      </main>
      {s.sheet && <SettingsSheet focusKey={s.sheet === 'key'} />}
      <Toast />
      <div class="hush" role="status">{s.said}</div>
    </div>
  );
}
