// Elements, tables that sort and filter, and other small parts. All texts become text nodes.
'use strict';

Diapason.tables = (() => {
  // h('a', {href: '#/'}, 'text', element): attributes that are null or false are left out; functions are listeners.
  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === 'function') element.addEventListener(name, value);
      else element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ''));
    return element;
  }

  // A share from 0 to 1 as a bar behind its number. Width is set by the object model: the policy forbids style attributes.
  function bar(share, text, tone) {
    const fill = h('span', { class: 'fill ' + (tone || '') });
    fill.style.width = Math.max(0, Math.min(1, share || 0)) * 100 + '%';
    return h('span', { class: 'bar' }, h('span', { class: 'track', 'aria-hidden': 'true' }, fill), h('span', { class: 'value' }, text));
  }

  const badges = { ok: ['good', 'verified'], failed: ['bad', 'wrong result'], wrong_in_network: ['bad', 'wrong in network'],
    unknown: ['', 'not verified'] };
  function badge(name) {
    const [tone, text] = badges[name] || ['', name];
    return h('span', { class: 'badge ' + tone }, text);
  }

  function tile(label, value, note) {
    return h('div', { class: 'tile' }, h('span', { class: 'label' }, label), h('strong', {}, value),
      note ? h('span', { class: 'note' }, note) : null);
  }

  function empty(title, text) {
    return h('div', { class: 'panel empty' }, h('h2', {}, title), h('p', {}, text));
  }

  function compare(a, b) {
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;  // what is not known comes last in both directions
    if (b === null || b === undefined) return -1;
    return a < b ? -1 : 1;
  }

  // `columns`: [{name, title, number, value(row), cell(row)}]: `value` is sorted by, `cell` is shown (default: the value).
  // `options`: {key(row), sort: name, descending, filter: placeholder, text(row), most, caption}. Returns {element, set(rows)}.
  function table(columns, options) {
    const state = { rows: [], sort: options.sort, descending: options.descending === true, filter: '', most: options.most || 100 };
    const head = h('tr'), body = h('tbody'), shown = new Map(), headers = new Map();
    const more = h('button', { type: 'button', class: 'quiet more', hidden: true, click: () => {
      state.most *= 4;
      render();
    } });
    for (const column of columns) {
      const button = h('button', { type: 'button', click: () => sortBy(column.name) }, column.name);
      const cell = h('th', { scope: 'col', class: column.number ? 'number' : null, title: column.title }, button);
      headers.set(column.name, cell);
      head.append(cell);
    }
    const search = options.filter ? h('input', { type: 'search', class: 'filter', placeholder: options.filter,
      'aria-label': options.filter, input: (event) => {
        state.filter = event.target.value.toLowerCase();
        render();
      } }) : null;

    function sortBy(name) {
      const column = columns.find((one) => one.name === name);
      state.descending = state.sort === name ? !state.descending : column.number === true;
      state.sort = name;
      render();
    }

    function ordered() {
      const column = columns.find((one) => one.name === state.sort);
      const rows = state.filter ? state.rows.filter((row) => options.text(row).toLowerCase().includes(state.filter)) : [...state.rows];
      if (!column) return rows;
      const known = (row) => column.value(row) !== null && column.value(row) !== undefined;
      const sign = state.descending ? -1 : 1;
      return rows.sort((a, b) => {
        const order = compare(column.value(a), column.value(b));
        return known(a) && known(b) ? sign * order : order;
      });
    }

    // Cells whose value has changed are made again, all others stay, with the focus that may be in them.
    function renderRow(row) {
      const key = String(options.key(row));
      let kept = shown.get(key);
      if (!kept) {
        kept = { element: h('tr', {}, columns.map((column) => h('td', { class: column.number ? 'number' : null }))), values: [] };
        shown.set(key, kept);
      }
      columns.forEach((column, i) => {
        const value = column.version ? column.version(row) : column.value(row);
        if (kept.values.length > i && kept.values[i] === value) return;
        kept.values[i] = value;
        const cell = column.cell ? column.cell(row) : value;
        kept.element.children[i].replaceChildren(cell === null || cell === undefined ? '–' : cell);
      });
      return kept.element;
    }

    function render() {
      const rows = ordered(), visible = rows.slice(0, state.most);
      const elements = visible.map(renderRow);
      const same = body.children.length === elements.length && elements.every((element, i) => body.children[i] === element);
      const active = document.activeElement;
      if (!same) body.replaceChildren(...elements);
      if (active !== document.activeElement && body.contains(active)) active.focus({ preventScroll: true });
      const live = new Set(visible.map((row) => String(options.key(row))));
      for (const key of shown.keys()) if (!live.has(key)) shown.delete(key);
      for (const [name, cell] of headers) {
        if (name === state.sort) cell.setAttribute('aria-sort', state.descending ? 'descending' : 'ascending');
        else cell.removeAttribute('aria-sort');
      }
      more.hidden = rows.length <= state.most;
      more.textContent = 'Show more (' + (rows.length - visible.length).toLocaleString('en-US') + ' hidden)';
      none.hidden = rows.length > 0;
      scroll.hidden = rows.length === 0;
    }

    const none = h('p', { class: 'muted none', hidden: true }, options.none || 'Nothing matches.');
    const scroll = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': options.caption },
      h('table', {}, h('caption', { class: 'hidden' }, options.caption), h('thead', {}, head), body));
    const element = h('div', { class: 'tablebox' }, search, scroll, none, more);
    return { element, set: (rows) => {
      state.rows = rows;
      render();
    } };
  }

  // Panels of which one is shown, chosen by buttons and arrow keys.
  function tabs(name, panels) {
    const buttons = panels.map(([title], i) => h('button', { type: 'button', role: 'tab', id: name + '-tab-' + i,
      'aria-controls': name + '-panel-' + i, click: () => choose(i), keydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = (i + step + panels.length) % panels.length;
        choose(next);
        buttons[next].focus();
      } }, title));
    const bodies = panels.map(([, content], i) => h('div', { role: 'tabpanel', id: name + '-panel-' + i, tabindex: '0',
      'aria-labelledby': name + '-tab-' + i }, content));
    function choose(chosen) {
      buttons.forEach((button, i) => {
        button.setAttribute('aria-selected', i === chosen ? 'true' : 'false');
        button.tabIndex = i === chosen ? 0 : -1;
        bodies[i].hidden = i !== chosen;
      });
    }
    choose(0);
    return h('div', { class: 'tabs' }, h('div', { role: 'tablist', 'aria-label': name }, buttons), bodies);
  }

  function facts(pairs) {
    return h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
      .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]).flat());
  }

  return { h, bar, badge, tile, empty, table, tabs, facts };
})();
