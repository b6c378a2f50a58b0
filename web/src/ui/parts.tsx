// Small parts that both pages are made of.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { setTheme, theme, type Theme } from '../lib/theme.ts';
import { useStore } from '../lib/store.ts';

const paths = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  gear: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  pencil: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  again: 'M19 12a7 7 0 1 1-2-5M19 4v4h-4',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  save: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  open: 'M12 16V5M7 9l5-5 5 5M5 20h14',
  more: 'M12 6v.01M12 12v.01M12 18v.01',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M6 10l6 6 6-6',
  chart: 'M4 20h16M7 16v-4M12 16V6M17 16v-7',
  chat: 'M5 5h14v11H10l-5 4z',
  play: 'M8 5l11 7-11 7z',
  pause: 'M9 6v12M15 6v12',
  forward: 'M5 12h13M13 7l5 5-5 5',
} as const;

export function Icon({ name }: { name: keyof typeof paths }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

interface ButtonProps extends Omit<JSX.IntrinsicElements['button'], 'icon' | 'label'> {
  icon: keyof typeof paths;
  label: string;
  kind?: string;
}

/** A button that is only an icon; its label is its name and its tip. */
export function IconButton({ icon, label, kind = 'bare square', ...rest }: ButtonProps) {
  return (
    <button type="button" class={`button ${kind}`} aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}

export function Sheet(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      class="sheet"
      ref={dialog}
      aria-labelledby={id}
      onClose={props.onClose}
      onMouseDown={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <div class="sheet-head">
        <h2 id={id}>{props.title}</h2>
        <IconButton icon="close" label="Close" onClick={() => dialog.current?.close()} />
      </div>
      <div class="sheet-body">{props.children}</div>
    </dialog>
  );
}

export function Segments<T extends string | number>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onPick: (value: T) => void;
}) {
  const name = useId();
  return (
    <fieldset class="segments" style="margin:0;padding:0" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <label key={value}>
          <input type="radio" name={name} checked={value === props.value} onChange={() => props.onPick(value)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

const themes: readonly (readonly [Theme, string])[] = [
  ['auto', 'As the system'],
  ['light', 'Light'],
  ['dark', 'Dark'],
];
export function ThemePicker() {
  return <Segments label="Theme" value={useStore(theme)} options={themes} onPick={setTheme} />;
}

export function KeyField(props: {
  value: string;
  remember: boolean;
  onChange: (key: string, remember: boolean) => void;
  focus?: boolean;
  trouble?: string;
}) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (props.focus) input.current?.focus();
  }, [props.focus]);
  return (
    <div class="field">
      <label for={id}>API key</label>
      <input
        id={id}
        ref={input}
        class="input"
        type="password"
        autocomplete="off"
        spellcheck={false}
        value={props.value}
        aria-invalid={props.trouble ? true : undefined}
        aria-describedby={`${id}-hint`}
        onInput={(event) => props.onChange(event.currentTarget.value.trim(), props.remember)}
      />
      <small id={`${id}-hint`}>{props.trouble || 'Only if the server was started with --api-key or --api-key-file.'}</small>
      <label class="check">
        <input
          type="checkbox"
          checked={props.remember}
          onChange={(event) => props.onChange(props.value, event.currentTarget.checked)}
        />
        Keep it on this device, not only in this tab
      </label>
    </div>
  );
}
