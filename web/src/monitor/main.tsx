import { render } from 'preact';
import '../styles/base.css';
import './monitor.css';
import { startTheme } from '../lib/theme.ts';
import { App } from './App.tsx';

startTheme();
render(<App />, document.getElementById('app')!);
