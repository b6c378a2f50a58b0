import { render } from 'preact';
import '../styles/base.css';
import './chat.css';
import { startTheme } from '../lib/theme.ts';
import { App } from './App.tsx';
import { meet, watchOtherTabs } from './state.ts';

startTheme();
watchOtherTabs();
render(<App />, document.getElementById('app')!);
void meet();
