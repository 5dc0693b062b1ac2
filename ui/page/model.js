// The measurements of a history and what follows from them: tasks, best records, estimates over time.
//
// Rows are kept in columns as they come (docs/page.md). A change appends rows and corrects some; only the tasks that it
// touches are computed again. Texts are never made part of markup here or elsewhere: they become text nodes (tables.js).
'use strict';

window.Diapason = {};

Diapason.model = (() => {
  const columns = ['record', 'run', 'workload', 'place', 'sketch', 'trial', 'after_us', 'median_us', 'stopped_early', 'predicted_us',
    'error', 'verified'];
  const refuted = new Set([2, 3]);  // verified_names: failed, wrong_in_network
  const longestPause = 60e6;        // of a tuner; longer ones are between runs and do not count as tuning time

  const model = {};

  function clear() {
    Object.assign(model, { version: 0, history: '', origin: '', totalTrials: 0, verifiedNames: [], workloads: [], places: [],
      sketches: [], errors: [], networks: [], latencies: [], runs: [], rows: {}, tasks: new Map(), rowOf: new Map(), live: false,
      hasJobs: false, hasFleet: false, jobs: null, fleet: null, records: null, tuningUs: [] });
    for (const name of columns) model.rows[name] = [];
  }

  const taskKey = (workload, place) => workload + ':' + place;

  function taskOf(workload, place) {
    const key = taskKey(workload, place);
    let task = model.tasks.get(key);
    if (!task) {
      task = { key, workload, place, name: model.workloads[workload].task, rows: [] };
      model.tasks.set(key, task);
    }
    return task;
  }

  // Whether row a goes before row b as a task's best.
  function better(a, b) {
    const { stopped_early: early, median_us: median } = model.rows;
    if (b < 0) return true;
    if (early[a] !== early[b]) return early[a] < early[b];
    return median[a] < median[b];
  }

  const usable = (row) => model.rows.median_us[row] !== null && !refuted.has(model.rows.verified[row]);

  // Everything that is shown of a task, over `rows` of it.
  function summary(rows) {
    const found = { best: -1, first: -1, trials: rows.length, failed: 0, verified: 0, errors: new Map(), sketches: new Map() };
    for (const row of rows) {
      const name = model.rows.sketch[row];
      let sketch = found.sketches.get(name);
      if (!sketch) found.sketches.set(name, sketch = { sketch: name, trials: 0, failed: 0, best: -1 });
      sketch.trials++;
      const error = model.rows.error[row];
      if (error >= 0) {
        found.failed++;
        sketch.failed++;
        const kind = model.errors[error].kind;
        found.errors.set(kind, (found.errors.get(kind) || []).concat(row));
      } else if (usable(row)) {
        if (found.first < 0 || (model.rows.stopped_early[found.first] && !model.rows.stopped_early[row])) found.first = row;
        if (better(row, found.best)) found.best = row;
        if (better(row, sketch.best)) sketch.best = row;
      }
      if (model.rows.verified[row] === 1) found.verified++;
    }
    return found;
  }

  function addRows(trials) {
    const touched = new Set();
    for (let i = 0; i < trials.record.length; i++) {
      const row = model.rows.record.length;
      for (const name of columns) model.rows[name].push(trials[name][i]);
      model.rowOf.set(trials.record[i], row);
      const pause = row === 0 ? 0 : model.rows.after_us[row] - model.rows.after_us[row - 1];
      const before = row === 0 ? 0 : model.tuningUs[row - 1];
      model.tuningUs.push(before + (pause > longestPause || pause < 0 ? 0 : pause));
      const task = taskOf(trials.workload[i], trials.place[i]);
      task.rows.push(row);
      touched.add(task);
    }
    return touched;
  }

  function correctRows(changed) {
    const touched = new Set();
    for (let i = 0; i < changed.record.length; i++) {
      const row = model.rowOf.get(changed.record[i]);
      if (row === undefined) continue;
      for (const name of ['median_us', 'stopped_early', 'verified']) model.rows[name][row] = changed[name][i];
      touched.add(taskOf(model.rows.workload[row], model.rows.place[row]));
    }
    return touched;
  }

  function addTables(json) {
    for (const name of ['workloads', 'places', 'sketches', 'errors']) model[name].push(...json[name]);
    for (const name of ['networks', 'latencies', 'runs']) model[name] = json[name];
    model.version = json.version;
    model.origin = json.origin;
    model.totalTrials = json.total_trials;
  }

  // Of a whole history.
  model.load = (json) => {
    const { jobs, fleet, records } = model;
    clear();
    addTables(json);
    Object.assign(model, { history: json.history, verifiedNames: json.verified_names, live: json.live === true,
      hasJobs: json.has_jobs === true, hasFleet: json.has_fleet === true, jobs, fleet, records });
    for (const task of addRows(json.trials)) Object.assign(task, summary(task.rows));
  };

  model.change = (json) => {
    addTables(json);
    const touched = addRows(json.trials);
    for (const task of correctRows(json.changed)) touched.add(task);
    for (const task of touched) Object.assign(task, summary(task.rows));
  };

  model.us = (row) => (row < 0 ? null : model.rows.median_us[row]);
  model.instant = (row) => new Date(Date.parse(model.origin) + model.rows.after_us[row] / 1000);
  model.gflops = (task, row) => {
    const flops = model.workloads[task.workload].flops;
    return flops > 0 && row >= 0 ? flops / model.us(row) / 1e3 : null;
  };
  model.intensity = (task) => {
    const { flops, bytes } = model.workloads[task.workload];
    return flops > 0 && bytes > 0 ? flops / bytes : null;
  };
  model.placeName = (place) => model.places[place].target + ' on ' + model.places[place].device;

  // Networks as they were tuned: each with every target and device that has measurements of it. Tasks of no network are
  // one more, without a name.
  model.tunings = () => {
    const found = [], seen = new Set();
    const places = model.places.map((_, place) => place);
    model.networks.forEach((network, index) => {
      for (const link of network.tasks) seen.add(link.workload);
      for (const place of places) {
        const tasks = network.tasks.map((link) => ({ link, task: model.tasks.get(taskKey(link.workload, place)) }));
        if (tasks.some((one) => one.task)) found.push({ id: index + '-' + place, name: network.network, place, tasks });
      }
    });
    for (const place of places) {
      const tasks = [...model.tasks.values()].filter((task) => task.place === place && !seen.has(task.workload))
        .map((task) => ({ link: { workload: task.workload, task: task.name, count: null }, task }));
      if (tasks.length > 0) found.push({ id: 'none-' + place, name: '', place, tasks });
    }
    return found;
  };

  // The latency that the best records of a tuning promise: the sum of its tasks' times with their counts.
  model.estimate = (tuning) => {
    const sum = { us: 0, firstUs: 0, timed: 0, counted: 0, trials: 0, failed: 0 };
    for (const { link, task } of tuning.tasks) {
      if (task) {
        sum.trials += task.trials;
        sum.failed += task.failed;
      }
      if (!(link.count > 0)) continue;
      sum.counted++;
      if (!task || task.best < 0) continue;
      sum.timed++;
      sum.us += link.count * model.us(task.best);
      sum.firstUs += link.count * model.us(task.first);
    }
    return sum;
  };

  // The estimate after each measurement that changed it: {n, tuningUs, us}. A task that was not timed yet counts with its
  // first time, so that the curve begins where all tasks had their first schedules. Measurements that were stopped early
  // count where a task has no others. `only(row)` selects measurements, `of(workload)` tasks.
  model.curve = (tuning, only = () => true, of = () => true) => {
    const counts = new Map(), best = new Map(), rows = [];
    for (const { link, task } of tuning.tasks) {
      if (!task) continue;
      const own = task.rows.filter(only), timed = own.filter(usable);
      rows.push(...own);
      const first = timed.find((row) => !model.rows.stopped_early[row]) ?? timed[0];
      if (!(link.count > 0) || first === undefined || !of(task.workload)) continue;
      counts.set(task.workload, link.count);
      best.set(task.workload, first);
    }
    rows.sort((a, b) => a - b);
    let us = 0;
    for (const [workload, row] of best) us += counts.get(workload) * model.us(row);
    const points = [];
    if (rows.length === 0 || best.size === 0) return points;
    const startUs = model.tuningUs[rows[0]];
    const point = (i) => points.push({ n: i + 1, tuningUs: model.tuningUs[rows[i]] - startUs, us });
    point(0);
    for (let i = 0; i < rows.length; i++) {
      const workload = model.rows.workload[rows[i]], now = best.get(workload);
      if (now === undefined || !usable(rows[i]) || now === rows[i] || !better(rows[i], now)) continue;
      us += counts.get(workload) * (model.us(rows[i]) - model.us(now));
      best.set(workload, rows[i]);
      point(i);
    }
    if (points[points.length - 1].n !== rows.length) point(rows.length - 1);
    return points;
  };

  model.bestSoFar = (task) => {
    const points = [];
    let best = -1;
    task.rows.forEach((row, i) => {
      if (usable(row) && better(row, best)) {
        best = row;
        points.push({ x: i + 1, y: model.us(row), row });
      }
    });
    if (best >= 0) points.push({ x: task.rows.length, y: model.us(best), row: best });
    return points;
  };

  // Of one run of a tuner.
  model.summaryOfRun = (task, run) => summary(task.rows.filter((row) => model.rows.run[row] === run));
  model.refuted = (row) => refuted.has(model.rows.verified[row]);
  clear();
  return model;
})();
