// Which page is shown, and keys.
'use strict';

(() => {
  const { model, views, draw, live } = Diapason;
  const { h } = Diapason.tables;
  const main = document.getElementById('main'), nav = document.getElementById('nav'), state = document.getElementById('state');
  let view = null, pending = false;

  // [address in the navigation, title, pattern, page, pages that belong to it]; those without an address are reached from
  // others.
  const pages = () => [
    ['#/', 'Network', /^#\/(network\/(.+))?$/, (match) => views.network(match[2]), /^#\/(task|record)\//],
    ['#/roofline', 'Roofline', /^#\/roofline(\/(\d+))?$/, (match) => views.roofline(match[2])],
    ['#/runs', 'Runs', /^#\/runs$/, () => views.runs(), /^#\/compare\//],
    model.hasJobs ? ['#/jobs', 'Jobs', /^#\/jobs$/, () => views.jobs(), /^#\/job\//] : null,
    model.hasFleet ? ['#/fleet', 'Fleet', /^#\/fleet$/, () => views.fleet()] : null,
    [null, '', /^#\/task\/([^/]+)\/(\d+)$/, (match) => views.task(decodeURIComponent(match[1]), match[2])],
    [null, '', /^#\/record\/(\d+)$/, (match) => views.record(Number(match[1]))],
    [null, '', /^#\/compare\/(\d+)\/(\d+)$/, (match) => views.compare(match[1], match[2])],
    [null, '', /^#\/job\/(\d+)$/, (match) => views.job(Number(match[1]))],
  ].filter(Boolean);

  function showNavigation() {
    const at = location.hash || '#/';
    const current = (pattern, below) => (pattern.test(at) ? 'page' : below && below.test(at) ? 'true' : null);
    nav.replaceChildren(...pages().filter((page) => page[0]).map(([address, title, pattern, , below]) =>
      h('a', { href: address, 'aria-current': current(pattern, below) }, title)));
  }

  function show() {
    const at = location.hash || '#/';
    draw.forgetAll();
    const page = pages().find(([, , pattern]) => pattern.test(at));
    view = page ? page[3](at.match(page[2])) : views.missing('There is no such page.');
    main.replaceChildren(view.element);
    draw.drawAll();
    showNavigation();
    document.title = view.title + ' · ' + model.history + ' · Diapason';
  }

  // How long it took until something was on the screen, for bench/page_speed.py.
  function measure(name, start) {
    requestAnimationFrame(() => setTimeout(() => performance.measure(name, { start, end: performance.now() })));
  }

  // Once a frame however much has come, and not while nobody looks.
  function refresh(what, since) {
    if (what === 'all' || view === null || (view.again && view.again())) {
      show();
      return measure('diapason-page', since);
    }
    if (pending) return undefined;
    pending = true;
    const later = document.hidden ? (then) => setTimeout(then, 1000) : requestAnimationFrame;
    return later(() => {
      pending = false;
      view.update();
      measure('diapason-update', since);
    });
  }

  function askForToken(message) {
    const input = h('input', { type: 'password', autocomplete: 'current-password', 'aria-label': 'Token', required: true });
    main.replaceChildren(h('section', { class: 'panel login' }, h('h1', {}, 'Token'), h('p', { class: 'muted' }, message),
      h('form', { submit: (event) => {
        event.preventDefault();
        live.setToken(input.value.trim());
        location.reload();
      } }, input, h('button', { type: 'submit', class: 'primary' }, 'Open'))));
    input.focus();
  }

  function stored(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;  // a report from a file may keep nothing
    }
  }

  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  function applyTheme() {
    document.documentElement.dataset.theme = stored('diapason-theme') || (prefersDark.matches ? 'dark' : 'light');
    if (view) draw.drawAll();
  }
  function toggleTheme() {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem('diapason-theme', next);
    } catch { /* for this page alone then */ }
    document.documentElement.dataset.theme = next;
    if (view) draw.drawAll();
  }

  const keys = { t: toggleTheme, '/': () => main.querySelector('.filter')?.focus(), h: () => { location.hash = '#/'; } };
  document.addEventListener('keydown', (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === 'Escape' && typing) event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.getElementById('theme').addEventListener('click', toggleTheme);
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  prefersDark.addEventListener('change', applyTheme);
  applyTheme();
  addEventListener('hashchange', () => {
    show();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
  live.start({ change: refresh, token: askForToken, state: (tone, text) => {
    state.className = 'state ' + tone;
    state.textContent = text;
  } });
})();
