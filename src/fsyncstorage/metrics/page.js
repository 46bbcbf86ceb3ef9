'use strict';

// The live page.  Names and words come from configurations, errors and peers:
// all of them become text nodes; nothing is ever read as HTML.  Each answer is
// shown from its beginning: the page keeps nothing of the one before.

const EVERY = 2000;      // milliseconds between two answers
const PATIENCE = 8000;   // milliseconds to wait for an answer
const HEIGHT = 100;      // of a picture, in its own units; its width is in seconds
const CLASSES = ['first', 'second', 'third'];  // of its lines

const SIGNS = {well: '✓', look: '!', bad: '✗'};
const STATES = {well: 'Well', look: 'Have a look', bad: 'Not well'};
const NONE = '–';

// Figures in words

function number(value) {
  if (value == null) return NONE;
  const digits = Math.abs(value) < 10 && value % 1 ? 1 : 0;
  return value.toLocaleString('en', {maximumFractionDigits: digits});
}

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

const bytes = value => scaled(value, ['B', 'kB', 'MB', 'GB', 'TB'], 1000);

function seconds(value) {
  if (value == null) return NONE;
  if (value < 1) return scaled(value * 1e6, ['µs', 'ms'], 1000);
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} days`;
}

const date = timestamp => new Date(1000 * timestamp).toISOString()
  .replace('T', ' ').replace(/\..*/, ' UTC');

// By the clock of the server: that of the browser may be different.
function since(timestamp) {
  const passed = Math.round(now - timestamp);
  return passed < 2 ? 'just now' : `${seconds(passed)} ago`;
}

const percent = share => `${Math.floor(100 * share)} %`;
const shares = parts => Object.entries(parts).map(
  ([name, share]) => `${name} ${percent(share)}`).join(', ');

// Elements

function make(name, attributes, ...children) {
  const element = ['svg', 'path'].includes(name)
    ? document.createElementNS('http://www.w3.org/2000/svg', name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function listed(verdicts) {
  return verdicts.map(([level, words]) => make(
    'li', {class: level}, `${SIGNS[level]} ${words}`));
}

// Pictures of the last half hour

// Each picture: its title, how a value is written, the least top of its scale;
// and for each line, its words and the name of its column.
const PICTURES = [
  ['Commits a second', number, 5,
   ['commits', 'commits'], ['conflicts', 'conflicts']],
  ['Commit time', seconds, .001,
   ['half within', 'commit_p50'], ['99 % within', 'commit_p99']],
  ['Sync time', seconds, .001,
   ['half within', 'sync_p50'], ['99 % within', 'sync_p99']],
  ['Loads a second', number, 5,
   ['by readers', 'loads_by_readers'], ['by the server', 'loads_from_memory'],
   ['by it from disk', 'loads_from_disk']],
  ['Transactions that wait', number, 5,
   ['for objects', 'waiting_for_objects'], ['for a sync', 'waiting_for_sync']],
  ['Clients', number, 5, ['connected', 'clients']],
];

function picture([what, inWords, least, ...lines], past, {span, every}) {
  const title = `${what}, the last ${seconds(span)}`;
  const columns = lines.map(([, name]) => past[name]);
  const most = Math.max(0, ...columns.flat().filter(value => value != null));
  const top = Math.max(most, least);
  const words = lines.map(
    ([words], index) => `${words} ${inWords(columns[index].at(-1))}`);
  const plot = make(
    'svg', {
      viewBox: `0 0 ${span} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
      'aria-label': `${title}: at most ${inWords(most)}, now ${words.join(', ')}`},
    make('path', {
      class: 'grid',
      d: `M0 0H${span}M0 ${HEIGHT / 2}H${span}M0 ${HEIGHT}H${span}`}),
    ...columns.map((column, index) => make('path', {
      class: CLASSES[index], d: line(column, past.ago, top, span, every)})));
  return make(
    'figure', {},
    make('figcaption', {}, make('strong', {}, what), ...words.map(
      (each, index) => make('span', {class: CLASSES[index]}, each))),
    make('div', {class: 'plot'}, plot,
         make('span', {class: 'top'}, inWords(top)),
         make('span', {class: 'zero'}, '0')),
    make('div', {class: 'times'}, make('span', {}, `${seconds(span)} ago`),
         make('span', {}, 'now')));
}

// The line has gaps where nothing is known.
function line(column, ago, top, span, every) {
  let path = '';
  column.forEach((value, index) => {
    if (value == null) return;
    const isNext = index && column[index - 1] != null
      && ago[index - 1] - ago[index] < 2.5 * every;
    const x = (span - ago[index]).toFixed(1);
    const y = (HEIGHT * (1 - value / top)).toFixed(2);
    path += isNext ? `L${x} ${y}` : `M${x} ${y}h.1`;
  });
  return path;
}

// What else is known of a storage: nothing is shown for what it does not have.

// Each fact: its title, its name as a metric, how it is written, for which all
// figures are at hand.
const FACTS = [
  ['Commits since the start', 'commits_total', number],
  ['Conflicts of 1,000 commits', 'conflicts_total',
   (value, figures) => number(1000 * value / Math.max(1, figures.commits_total))],
  ['Data', 'data_bytes', bytes],
  ['Objects', 'objects', number],
  ['Readers', 'read_channels', number],
  ['Reads that wait', 'reads_waiting', number],
  ['Last durable commit', 'last_durable_commit_timestamp_seconds', since],
  ['Pack', 'pack_phase_progress_ratio', shares],
  ['The last pack ended', 'last_pack_timestamp_seconds', since],
  ['This pass of the scrub', 'scrub_progress_ratio', percent],
  ['The last pass ended', 'scrub_last_pass_timestamp_seconds', since],
  ['Damaged transactions', 'scrub_damaged_transactions', number],
];

// The page

let now = null;  // the time of the server when it last answered
let title = 'fsyncstorage';  // with the host, as soon as that is known

const place = id => document.getElementById(id);

function section(storage, answer) {
  const {name, file, durability, verdicts, past, figures} = storage;
  const facts = FACTS.filter(([, metric]) => figures[metric] != null);
  return make(
    'section', {},
    make('h2', {}, `Storage ${name}`),
    make('p', {}, [file, durability && `durability ${durability}`].filter(
      Boolean).join(', ')),
    make('ul', {class: 'cards'}, ...listed(verdicts)),
    make('div', {class: 'cards'}, ...PICTURES.map(
      each => picture(each, past, answer))),
    make('dl', {class: 'cards'}, ...facts.map(([title, metric, inWords]) => make(
      'div', {}, make('dt', {}, title),
      make('dd', {}, inWords(figures[metric], figures))))));
}

function sayAll(verdicts, all) {
  const levels = [...verdicts, ...all].map(([level]) => level);
  const level = ['bad', 'look'].find(each => levels.includes(each)) ?? 'well';
  const words = `${SIGNS[level]} ${STATES[level]}`;
  // Text that has not changed is not replaced: a screen reader would read it
  // again.
  if (place('state').textContent !== words) place('state').textContent = words;
  place('state').className = level;
  place('verdicts').replaceChildren(...listed(verdicts));
  document.title = (level === 'well' ? '' : `${SIGNS[level]} `) + title;
}

function show(answer) {
  now = answer.time;
  title = `fsyncstorage on ${answer.host}`;
  place('title').textContent = title;
  document.body.classList.remove('silent');
  const {storages, verdicts} = answer;
  place('storages').replaceChildren(
    ...storages.map(storage => section(storage, answer)));
  if (!storages.length) verdicts.push(['look', 'No storage is open.']);
  sayAll(verdicts, storages.flatMap(storage => storage.verdicts));
  place('about').textContent = `version ${answer.version}, ${
    answer.process}, started ${since(answer.started)}; ${date(now)}`;
}

function showSilence(why) {
  document.body.classList.add('silent');
  sayAll([['bad', `No answer: ${why}`]], []);
}

async function look() {
  try {
    const answer = await fetch('now', {signal: AbortSignal.timeout(PATIENCE)});
    if (!answer.ok) throw new Error(`the status is ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    showSilence(error.message);
  }
}

// A hidden page does not ask.
async function lookAgainAndAgain() {
  if (!document.hidden) await look();
  setTimeout(lookAgainAndAgain, EVERY);
}

lookAgainAndAgain();
