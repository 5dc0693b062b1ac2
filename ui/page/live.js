// Where the data come from: a server that is asked and followed, or the report's own file.
'use strict';

Diapason.live = (() => {
  const { model } = Diapason;
  const embedded = document.getElementById('diapason-data');
  const report = embedded ? JSON.parse(embedded.textContent) : null;
  const listeners = { change: () => {}, state: () => {}, token: () => {} };
  const keyOfToken = 'diapason-token';
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));

  // For this tab alone.
  const token = () => sessionStorage.getItem(keyOfToken);
  const setToken = (text) => sessionStorage.setItem(keyOfToken, text);

  class Refusal extends Error {
    constructor(status, message) {
      super(message);
      this.status = status;
    }
  }

  async function ask(path, options = {}) {
    const headers = token() ? { Authorization: 'Bearer ' + token() } : {};
    const response = await fetch(path, { ...options, headers, cache: 'no-store' });
    if (response.ok) return response;
    let message = 'the server answered with status ' + response.status;
    try {
      message = (await response.json()).error || message;
    } catch { /* no document of ours */ }
    throw new Refusal(response.status, message);
  }

  // What to tell who has to give a token: nothing was wrong when there was none yet.
  const whyToken = (error) => (token() ? error.message : 'Whoever has a token of this service may look: of any role but worker.');

  async function json(path) {
    return (await ask(path)).json();
  }

  async function record(id) {
    if (!report) return json('api/records/' + id);
    const found = report.records[id];
    if (!found) throw new Refusal(404, 'This report holds the details of some records only. In the folder of the history, `diapason ' +
      'explain --history ' + model.history + ' --record ' + id + '` shows those of this one.');
    return found;
  }

  const job = async (id) => (await json('api/jobs/' + id)).job;

  function receive(event, data) {
    const since = performance.now();
    if (event === 'again') return load(since);
    const document = JSON.parse(data);
    if (event === 'change' && document.version > model.version) model.change(document);
    if (event === 'jobs') model.jobs = document;
    if (event === 'fleet') model.fleet = document;
    return listeners.change(event, since);
  }

  // Server-sent events by fetch, since an EventSource cannot send a token.
  async function readEvents(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const text of events) {
        const fields = {};
        for (const line of text.split('\n')) {
          const colon = line.indexOf(': ');
          if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
        }
        if (fields.event) await receive(fields.event, fields.data);
      }
    }
  }

  async function follow() {
    for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
      try {
        const response = await ask('api/events?after=' + model.version);
        listeners.state('live', 'Live');
        wait = 500;
        await readEvents(response.body);
      } catch (error) {
        if (error.status === 401) return listeners.token(whyToken(error));
        listeners.state('lost', 'Not connected, trying again');
      }
      await pause(wait);
    }
  }

  async function load(since = 0) {
    model.load(report ? report.history : await json('api/history'));
    if (model.hasJobs && !model.jobs) model.jobs = await json('api/jobs');
    if (model.hasFleet && !model.fleet) model.fleet = await json('api/fleet');
    listeners.change('all', since);
  }

  async function start(given) {
    Object.assign(listeners, given);
    try {
      await load();
    } catch (error) {
      if (error.status === 401 || error.status === 403) return listeners.token(whyToken(error));
      listeners.state('lost', 'Not connected: ' + error.message);
      await pause(2000);
      return start(given);
    }
    if (report) return listeners.state('', 'Report');
    return follow();
  }

  return { start, record, job, setToken, isReport: report !== null };
})();
