import { useId } from 'preact/hooks';
import { useStore } from '../lib/store.ts';
import { KeyField, Sheet, ThemePicker } from '../ui/parts.tsx';
import { change, fieldTrouble, numberFields, settings, toolsTrouble, type NumberField } from './settings.ts';
import { keyKept, meet, openSheet, server, setKey, setSystem, state } from './state.ts';

/** What the server does where a field is empty. */
function serverDefault(params: Record<string, unknown> | undefined, key: string): string {
  const value = params?.[key];
  if (key === 'max_tokens' && value === -1) return 'no limit';
  return typeof value === 'number' ? String(Number(value.toPrecision(6))) : '';
}

function NumberInput({ field }: { field: NumberField }) {
  const id = useId();
  const value = useStore(settings)[field.key];
  const params = useStore(state).props?.default_generation_settings?.params;
  const trouble = fieldTrouble(field, value);
  return (
    <div class="field">
      <label for={id}>{field.label}</label>
      <input
        id={id}
        class="input number"
        inputMode={field.whole ? 'numeric' : 'decimal'}
        autocomplete="off"
        value={value}
        placeholder={field.key === 'seed' ? 'random' : serverDefault(params, field.key)}
        aria-invalid={trouble ? true : undefined}
        aria-describedby={`${id}-hint`}
        onInput={(event) => change({ [field.key]: event.currentTarget.value })}
      />
      <small id={`${id}-hint`}>{trouble || field.hint}</small>
    </div>
  );
}

function SystemPrompt() {
  const { current } = useStore(state);
  const all = useStore(settings).system;
  const id = useId();
  const same = current.system === all;
  return (
    <div class="field">
      <label for={id}>System prompt of this conversation</label>
      <textarea
        id={id}
        class="input"
        rows={3}
        value={current.system}
        onInput={(event) => setSystem(current, event.currentTarget.value)}
      />
      <div class="row wrap" hidden={same}>
        <button type="button" class="button little" onClick={() => change({ system: current.system })}>
          {current.system === '' ? 'None for new conversations either' : 'Use it for new conversations too'}
        </button>
        {all !== '' && (
          <button type="button" class="button little" onClick={() => setSystem(current, all)}>
            Take that of new conversations
          </button>
        )}
      </div>
    </div>
  );
}

const efforts = ['', 'none', 'low', 'medium', 'high'];

export function SettingsSheet({ focusKey }: { focusKey: boolean }) {
  const s = useStore(settings);
  const page = useStore(state);
  const id = useId();
  const trouble = toolsTrouble(s.tools);
  const close = () => {
    openSheet(null);
    void meet();
  };
  return (
    <Sheet title="Settings" onClose={close}>
      {!focusKey && <SystemPrompt />}
      <KeyField
        value={server.key}
        remember={keyKept.remember}
        focus={focusKey}
        trouble={page.trouble?.kind === 'key' ? page.trouble.message : ''}
        onChange={setKey}
      />
      <h3>Sampling, in all conversations</h3>
      <div class="two">
        {numberFields.map((field) => (
          <NumberInput key={field.key} field={field} />
        ))}
        <div class="field">
          <label for={`${id}-effort`}>Reasoning effort</label>
          <select id={`${id}-effort`} class="input" value={s.effort} onChange={(event) => change({ effort: event.currentTarget.value })}>
            {efforts.map((effort) => (
              <option key={effort} value={effort}>
                {effort === '' ? 'as the model has it' : effort}
              </option>
            ))}
          </select>
        </div>
      </div>
      <div class="field">
        <label for={`${id}-tools`}>Tools</label>
        <textarea
          id={`${id}-tools`}
          class="input mono"
          rows={4}
          spellcheck={false}
          value={s.tools}
          aria-invalid={trouble ? true : undefined}
          aria-describedby={`${id}-tools-hint`}
          placeholder='[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]'
          onInput={(event) => change({ tools: event.currentTarget.value })}
        />
        <small id={`${id}-tools-hint`}>{trouble || 'A JSON array as OpenAI has it. Calls are shown, and you give their results.'}</small>
      </div>
      <div class="field">
        <span>Theme</span>
        <ThemePicker />
      </div>
      <div class="muted small">
        Enter sends, Shift+Enter begins a line, Escape stops, Arrow up in an empty message edits your last one, Ctrl+Shift+O begins a conversation.
        {page.props?.build_info && ` The server is ${page.props.build_info}.`}
      </div>
    </Sheet>
  );
}
