'use strict';

// The live page.  Names and words come from configurations, errors and peers:
// all of them become text nodes; nothing is ever read as HTML.

const EVERY = 2000;      // milliseconds between two answers
const PATIENCE = 8000;   // milliseconds to wait for an answer
const HEIGHT = 100;      // of a picture, in its own units; its width is in seconds

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
  if (value == null) return NONE;
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

// By the clock of the server: that of the browser may be different.
function since(timestamp) {
  const passed = Math.round(now - timestamp);
  return passed < 2 ? 'just now' : `${seconds(passed)} ago`;
}

const percent = share => `${Math.floor(100 * share)} %`;
const newest = column => column?.length ? column[column.length - 1] : null;

function sum(...values) {
  const known = values.filter(value => value != null);
  return known.length ? known.reduce((a, b) => a + b) : null;
}

// Elements

function make(name, className, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function draw(name, className) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  if (className) element.setAttribute('class', className);
  return element;
}

// Text that has not changed is not replaced: somebody may be selecting it, and
// a screen reader should not read it again.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function sayState(element, level) {
  say(element, `${SIGNS[level]} ${STATES[level]}`);
  element.className = `state ${level}`;
}

function sayVerdicts(list, verdicts) {
  const words = verdicts.map(({level, words}) => `${SIGNS[level]} ${words}`);
  if (words.join('\n') === list.dataset.words) return;
  list.dataset.words = words.join('\n');
  list.replaceChildren(...verdicts.map(
    ({level}, index) => make('li', level, words[index])));
}

function worst(verdicts) {
  const levels = verdicts.map(({level}) => level);
  return ['bad', 'look'].find(level => levels.includes(level)) ?? 'well';
}

// Pictures of the last ten minutes

// The next of 1, 2, 5, 10, 20, 50, ...
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(each => each * power >= value * .9999) * power;
}

class Picture {

  // `series`: for each line, its words, and the name of its column.
  constructor(title, inWords, least, ...series) {
    this.title = title;
    this.inWords = inWords;
    this.least = least;    // the top of the scale is never below this
    this.series = series;
    this.keys = series.map((_, index) => make('span', index ? 'key second' : 'key'));
    this.lines = series.map((_, index) => draw('path', index ? 'second' : 'first'));
    this.grid = draw('path', 'grid');
    this.svg = draw('svg');
    this.svg.setAttribute('preserveAspectRatio', 'none');
    this.svg.setAttribute('role', 'img');
    this.svg.append(this.grid, ...this.lines);
    this.top = make('span', 'top');
    this.from = make('span');
    this.element = make(
      'figure', '',
      make('figcaption', '', make('strong', '', title), ...this.keys),
      make('div', 'plot', this.svg, this.top),
      make('div', 'times', this.from, make('span', '', 'now')));
  }

  update(past, span, every) {
    const columns = this.series.map(([, name]) => past[name]);
    const known = columns.flat().filter(value => value != null);
    // (There are no durations while nothing happens.)
    this.element.hidden = past.ago.length > 0 && !known.length
      && !this.series.some(([, name]) => name.endsWith('_p50'));
    const most = Math.max(0, ...known);
    const top = roundedUp(Math.max(most, this.least));
    say(this.top, this.inWords(top));
    say(this.from, `${seconds(span)} ago`);
    this.svg.setAttribute('viewBox', `0 0 ${span} ${HEIGHT}`);
    this.grid.setAttribute(
      'd', `M0 0H${span}M0 ${HEIGHT / 2}H${span}M0 ${HEIGHT}H${span}`);
    columns.forEach((column, index) => this.lines[index].setAttribute(
      'd', this.path(column, past.ago, top, span, every)));
    const words = this.series.map(
      ([words], index) => `${words} ${this.inWords(newest(columns[index]))}`);
    this.svg.setAttribute('aria-label', `${this.title}, the last ${
      seconds(span)}: at most ${this.inWords(most)}, now ${words.join(', ')}`);
    words.forEach((each, index) => say(this.keys[index], each));
  }

  // The line has gaps where nothing is known.
  path(column, ago, top, span, every) {
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
}

// One storage

function pictures() {
  return [
    new Picture('Commits a second', number, 5,
                ['commits', 'commits'], ['conflicts', 'conflicts']),
    new Picture('Commit time', seconds, .001,
                ['half within', 'commit_p50'], ['99 % within', 'commit_p99']),
    new Picture('Sync time', seconds, .001,
                ['half within', 'sync_p50'], ['99 % within', 'sync_p99']),
    new Picture('Loads a second', number, 5,
                ['from memory', 'loads_from_memory'],
                ['from disk', 'loads_from_disk']),
    new Picture('Transactions that wait', number, 5,
                ['for objects', 'waiting_for_objects'],
                ['for a sync', 'waiting_for_sync']),
    new Picture('Clients', number, 5, ['connected', 'clients']),
  ];
}

// Each tile: its name, its figure, the text beside it.  No figure: no tile.
const TILES = [
  ['Commits / s', ({past, figures}) => figures.commits_total != null
    && [number(newest(past.commits)), `${number(figures.commits_total)} in all`]],
  ['Commit time', ({past, durations}) => durations.commit_duration_seconds
    && [seconds(newest(past.commit_p50)),
        newest(past.commit_p99) == null ? 'none now'
          : `99 % within ${seconds(newest(past.commit_p99))}`]],
  ['Sync time', ({past, durations}) => durations.sync_duration_seconds
    && [seconds(newest(past.sync_p50)),
        `${number(newest(past.syncs))} a second`]],
  ['Loads / s', ({past, figures}) => figures.loads_total
    && [number(sum(newest(past.loads_from_memory), newest(past.loads_from_disk))),
        `${number(newest(past.loads_from_disk))} from the disk`]],
  ['Clients', ({figures, local_clients}) => figures.clients != null
    && [number(figures.clients), `${number(figures.read_channels)} read channels${
      local_clients == null ? '' : `, ${number(local_clients)} local`}`]],
  ['Wait for objects', ({figures}) => figures.transactions_waiting?.vote != null
    && [number(figures.transactions_waiting.vote),
        `${number(figures.transactions_waiting.sync ?? 0)} for a sync, ${
          number(figures.reads_waiting ?? 0)} reads`]],
  ['Conflicts', ({figures}) => figures.conflicts_total != null
    && [number(figures.conflicts_total),
        `${number(figures.conflicts_resolved_total ?? 0)} resolved`]],
  ['Data', ({figures}) => figures.data_bytes != null
    && [bytes(figures.data_bytes), `${number(figures.objects)} objects`]],
];

function ofPack({figures, pack_share}) {
  if (pack_share != null) {
    const phase = Object.keys(figures.pack_phase_progress_ratio ?? {})[0];
    return [`${percent(pack_share)}, ${phase ? `in its phase “${phase}”` : 'it begins'}`,
            pack_share];
  }
  if (figures.last_pack_timestamp_seconds == null) return ['None since the start'];
  return [`The last one, ${since(figures.last_pack_timestamp_seconds)}, ${
    figures.last_pack_succeeded ? 'took' : 'was not done, after'} ${
    seconds(figures.last_pack_duration_seconds)}`];
}

function ofScrub({figures}) {
  if (figures.scrub_passes_total == null) {
    return ['None: the file is not verified (scrub-rate)'];
  }
  const ended = figures.scrub_last_pass_timestamp_seconds;
  const damaged = figures.scrub_damaged_transactions;
  return [`${damaged ? `${number(damaged)} damaged transactions` : 'No damage found'}; ${
    ended == null ? 'no pass has ended yet' : `the last pass ended ${since(ended)}`}`,
          figures.scrub_progress_ratio < 1 ? figures.scrub_progress_ratio : null];
}

function ofDurable({figures}) {
  const last = figures.last_durable_commit_timestamp_seconds;
  return [last == null ? 'None yet' : `${since(last)}, ${
    new Date(1000 * last).toLocaleString()}`];
}

const WORK = [['Last durable commit', ofDurable], ['Pack', ofPack], ['Scrub', ofScrub]];

class Storage {

  constructor(name) {
    this.state = make('p');
    this.policy = make('p');
    this.verdicts = make('ul', 'verdicts');
    this.tiles = TILES.map(([title]) => make(
      'div', '', make('dt', '', title), make('dd'), make('dd')));
    this.pictures = pictures();
    this.work = WORK.map(([title]) => make(
      'div', '', make('dt', '', title), make('dd'), make('progress')));
    this.element = make(
      'section', '',
      make('div', 'title', make('h2', '', `Storage ${name}`), this.state, this.policy),
      this.verdicts,
      make('dl', 'tiles', ...this.tiles),
      make('div', 'pictures', ...this.pictures.map(each => each.element)),
      make('dl', 'work', ...this.work));
  }

  update(storage, {span, every}) {
    sayState(this.state, worst(storage.verdicts));
    say(this.policy, storage.durability ? `durability ${storage.durability}` : '');
    sayVerdicts(this.verdicts, storage.verdicts);
    TILES.forEach(([, read], index) => {
      const [, value, note] = this.tiles[index].children;
      const found = read(storage);
      this.tiles[index].hidden = !found;
      if (found) {
        say(value, found[0]);
        say(note, found[1]);
      }
    });
    for (const picture of this.pictures) picture.update(storage.past, span, every);
    const isOurs = storage.durability != null;
    WORK.forEach(([, read], index) => {
      const [, words, bar] = this.work[index].children;
      const [text, share] = isOurs ? read(storage) : [''];
      this.work[index].hidden = !isOurs;
      say(words, text);
      bar.hidden = share == null;
      if (share != null) bar.value = share;
    });
  }
}

// The page

const storages = new Map();  // by their names
let heard = null;            // when the last answer arrived
let now = null;              // the time of the server then

function place(id) {
  return document.getElementById(id);
}

function showAll(answer) {
  const named = new Set(answer.storages.map(({name}) => name));
  for (const [name, storage] of storages) {
    if (!named.has(name)) {
      storage.element.remove();
      storages.delete(name);
    }
  }
  for (const each of answer.storages) {
    if (!storages.has(each.name)) {
      const storage = new Storage(each.name);
      storages.set(each.name, storage);
      place('storages').append(storage.element);
    }
    storages.get(each.name).update(each, answer);
  }
}

function sayAll(verdicts, all) {
  const level = worst([...verdicts, ...all]);
  sayState(place('state'), level);
  sayVerdicts(place('verdicts'), verdicts);
  say(document.querySelector('title'),
      level === 'well' ? 'fsyncstorage' : `${SIGNS[level]} fsyncstorage`);
}

function show(answer) {
  heard = Date.now();
  now = answer.time;
  document.body.classList.remove('silent');
  showAll(answer);
  const verdicts = [...answer.verdicts];
  if (!answer.storages.length) {
    verdicts.push({level: 'look', words: 'No storage is open.'});
  }
  sayAll(verdicts, answer.storages.flatMap(storage => storage.verdicts));
  say(place('about'), `version ${answer.version}, ${answer.process}, ${
    new Date().toLocaleTimeString()}`);
}

function showSilence(why) {
  document.body.classList.add('silent');
  const words = heard == null ? 'No answer'
    : `No answer for ${seconds((Date.now() - heard) / 1000)}`;
  sayAll([{level: 'bad', words: `${words}: ${why}`}], []);
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

// A hidden page does not ask.  When it is shown again, it asks at once.
async function lookAgainAndAgain() {
  let wake = null;
  document.addEventListener('visibilitychange', () => wake?.());
  for (;;) {
    if (!document.hidden) await look();
    await new Promise(resolve => {
      wake = resolve;
      setTimeout(resolve, EVERY);
    });
  }
}

lookAgainAndAgain();
