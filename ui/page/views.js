// The pages. Each is made once for its address: {title, element, update()}; `update` brings it up to date in place.
'use strict';

Diapason.views = (() => {
  const { model, draw } = Diapason;
  const { h, bar, badge, tile, empty, table, tabs, facts } = Diapason.tables;
  const { number, duration } = draw;
  const count = (value) => value.toLocaleString('en-US');
  const percent = (share) => {
    if (share === null || !Number.isFinite(share)) return '–';
    return share > 0 && share < 0.0005 ? '<0.1%' : (100 * share).toFixed(1) + '%';
  };
  const plural = (value, noun) => count(value) + ' ' + noun + (value === 1 ? '' : 's');
  const when = (text) => (text ? new Date(text).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' }) : '–');
  const link = (address, text, attributes) => h('a', { href: address, ...attributes }, text);
  const named = (text) => h('span', { class: 'name', title: text }, text);

  const taskAddress = (task) => '#/task/' + encodeURIComponent(model.workloads[task.workload].workload) + '/' + task.place;
  const recordAddress = (row) => '#/record/' + model.rows.record[row];
  const verifiedName = (row) => model.verifiedNames[model.rows.verified[row]];
  const sketchName = (row) => (row < 0 ? null : model.sketches[model.rows.sketch[row]]);
  const tuningTitle = (tuning) => tuning.name || 'Tasks of no network';

  function heading(title, text) {
    return [h('h1', {}, title), h('p', { class: 'sub' }, text)];
  }

  function choice(name, options, chosen, choose) {
    const buttons = options.map(([value, text]) => h('button', { type: 'button', 'aria-pressed': String(value === chosen), click: () => {
      buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(options[i][0] === value)));
      choose(value);
    } }, text));
    return h('div', { class: 'choice', role: 'group', 'aria-label': name }, buttons);
  }

  function select(name, options, chosen, choose) {
    return h('label', {}, name, h('select', { change: (event) => choose(event.target.value) },
      options.map(([value, text]) => h('option', { value, selected: String(value) === String(chosen) }, text))));
  }

  // `again` says that a change needs the page made anew: here, any may bring what is missing.
  const nothing = () => ({ title: 'Nothing yet', again: () => true, element: empty('No measurements yet',
    'As soon as `diapason tune` or a job measures something into this history, it appears here.') });

  // ---- Network ------------------------------------------------------------------------------------------------------

  const curveSeries = (tuning, by, only, of) => model.curve(tuning, only, of).map((point) =>
    ({ x: by === 'n' ? point.n : point.tuningUs / 1e6, y: point.us, n: point.n }));

  function estimateFigure(state) {
    let by = 'n';
    const chart = draw.figure({
      legend: false,
      series: () => [{ label: 'estimated latency', points: curveSeries(state.tuning, by), line: true, stepped: true }],
      x: () => ({ title: by === 'n' ? 'measurements' : 'tuning time in seconds, pauses left out', min: by === 'n' ? undefined : 0 }),
      y: () => ({ title: 'estimated latency', format: duration }),
      label: (point) => duration(point.y) + ' after ' + plural(point.n, 'measurement'),
      caption: () => {
        const sum = model.estimate(state.tuning);
        if (sum.counted === 0) return 'These tasks are of no network, so that they have no latency together.';
        const untimed = sum.counted - sum.timed;
        return 'Sum of the best times of ' + plural(sum.timed, 'task') + ' with their counts. Tasks count with their first time until ' +
          'they have a better one.' + (untimed > 0 ? ' Left out: ' + plural(untimed, 'task') + ' without a time.' : '');
      },
      tools: () => choice('Horizontal axis', [['n', 'Measurements'], ['time', 'Time']], by, (value) => {
        by = value;
        chart.update();
      }),
    }, 'Estimated latency over time');
    return chart;
  }

  function taskRows(tuning) {
    const total = model.estimate(tuning).us;
    const rows = tuning.tasks.map(({ link: one, task }) => {
      const us = task ? model.us(task.best) : null;
      const firstUs = task ? model.us(task.first) : null;
      return { key: one.workload, name: one.task, task, count: one.count, us, share: us !== null && one.count > 0 ? one.count * us / total : null,
        speedUp: us === null ? null : firstUs / us, trials: task ? task.trials : 0, failed: task ? task.failed : 0,
        sketches: task ? task.sketches.size : 0, sketch: task ? sketchName(task.best) : null,
        verified: task && task.best >= 0 ? verifiedName(task.best) : null };
    });
    const largest = Math.max(...rows.map((row) => row.share || 0));
    for (const row of rows) row.ofLargest = row.share / largest;
    return rows;
  }

  const taskColumns = [
    { name: 'task', value: (row) => row.name, version: (row) => row.name + (row.task ? '' : '?'),
      cell: (row) => (row.task ? link(taskAddress(row.task), named(row.name)) : named(row.name)) },
    { name: 'count', title: 'How often the network has it; 0: a fusion alternative', number: true, value: (row) => row.count,
      cell: (row) => (row.count === null ? '–' : number(row.count)) },
    { name: 'best', number: true, value: (row) => row.us, cell: (row) => duration(row.us) },
    { name: 'share', title: 'Of the estimated latency', number: true, value: (row) => row.share,
      version: (row) => row.share + ' ' + row.ofLargest,
      cell: (row) => (row.share === null ? '–' : bar(row.ofLargest, percent(row.share))) },
    { name: 'speed-up', title: 'Over its first measured schedule', number: true, value: (row) => row.speedUp,
      cell: (row) => (row.speedUp === null ? '–' : row.speedUp.toFixed(2) + '×') },
    { name: 'trials', number: true, value: (row) => row.trials, cell: (row) => count(row.trials) },
    { name: 'failed', number: true, value: (row) => row.failed, cell: (row) => count(row.failed) },
    { name: 'sketches', title: 'Sketches tried', number: true, value: (row) => row.sketches },
    { name: 'best sketch', value: (row) => row.sketch, cell: (row) => (row.sketch ? named(row.sketch) : '–') },
    { name: 'result', value: (row) => row.verified, cell: (row) => (row.verified ? badge(row.verified) : '–') },
  ];

  function errorKinds(tasks) {
    const kinds = new Map();
    for (const task of tasks) for (const [kind, rows] of task.errors) kinds.set(kind, (kinds.get(kind) || 0) + rows.length);
    return [...kinds].sort((a, b) => b[1] - a[1]);
  }

  function errorList(tasks) {
    const kinds = errorKinds(tasks), most = kinds.length > 0 ? kinds[0][1] : 0;
    if (kinds.length === 0) return h('p', { class: 'muted' }, 'No measurement has failed.');
    return h('ul', { class: 'list' }, kinds.map(([kind, trials]) =>
      h('li', {}, h('span', { class: 'mono' }, kind), bar(trials / most, count(trials), 'bad'))));
  }

  // "gemm" of "gemm/tile1.whole".
  function winners(rows) {
    const found = new Map();
    for (const row of rows.filter((one) => one.sketch && (one.count === null || one.count > 0))) {
      const algorithm = row.sketch.split('/')[0], sum = found.get(algorithm) || { tasks: 0, share: 0 };
      found.set(algorithm, { tasks: sum.tasks + 1, share: sum.share + (row.share || 0) });
    }
    return [...found].sort((a, b) => b[1].share - a[1].share || b[1].tasks - a[1].tasks);
  }

  function winnerList(rows) {
    const found = winners(rows);
    if (found.length === 0) return h('p', { class: 'muted' }, 'No task has a time yet.');
    return h('ul', { class: 'list' }, found.slice(0, 8).map(([algorithm, { tasks, share }]) =>
      h('li', {}, h('span', {}, algorithm, h('span', { class: 'muted' }, ' ' + plural(tasks, 'task'))), bar(share, percent(share)))));
  }

  const latencyOf = (tuning) => model.latencies.find((one) => one.network === tuning.name &&
    one.target === model.places[tuning.place].target && one.device === model.places[tuning.place].device);

  function networkTiles(tuning) {
    const sum = model.estimate(tuning), measured = latencyOf(tuning);
    return [
      sum.counted > 0 ? tile('Estimated latency', duration(sum.timed > 0 ? sum.us : null), 'sum of the best times') : null,
      sum.timed > 0 ? tile('Speed-up', (sum.firstUs / sum.us).toFixed(2) + '×', 'over the first schedules') : null,
      measured ? tile('Measured', duration(measured.latency_us), 'end to end, ' + when(measured.measured_at)) : null,
      tile('Measurements', count(sum.trials), plural(sum.failed, 'failure')),
      tile('Tasks timed', sum.counted > 0 ? sum.timed + ' of ' + sum.counted : String(tuning.tasks.length),
        sum.counted < tuning.tasks.length && sum.counted > 0 ? plural(tuning.tasks.length - sum.counted, 'fusion alternative') : null),
    ];
  }

  function network(id) {
    const all = model.tunings();
    if (all.length === 0) return nothing();
    const state = { tuning: null };
    const find = () => {
      const now = model.tunings();
      const busiest = () => now.reduce((a, b) => (model.estimate(b).trials > model.estimate(a).trials ? b : a));
      state.tuning = now.find((one) => one.id === id) || busiest();
      return now;
    };
    find();
    const tiles = h('div', { class: 'tiles' }), errors = h('div'), algorithms = h('div');
    const figure = estimateFigure(state);
    const tasks = table(taskColumns, { key: (row) => row.key, sort: 'share', descending: true, filter: 'Filter tasks and sketches',
      text: (row) => row.name + ' ' + (row.sketch || ''), caption: 'Tasks of the network', none: 'No task matches.' });
    const picker = all.length < 2 ? null : h('div', { class: 'controls' }, select('Network', all.map((one) =>
      [one.id, tuningTitle(one) + ' · ' + model.placeName(one.place)]), state.tuning.id, (value) => { location.hash = '#/network/' + value; }));
    const subtitle = h('p', { class: 'sub' });
    function update() {
      find();
      subtitle.textContent = model.placeName(state.tuning.place) + shownNote();
      tiles.replaceChildren(...networkTiles(state.tuning).filter(Boolean));
      errors.replaceChildren(errorList(state.tuning.tasks.map((one) => one.task).filter(Boolean)));
      const rows = taskRows(state.tuning);
      algorithms.replaceChildren(winnerList(rows));
      tasks.set(rows);
      figure.update();
    }
    update();
    const element = h('div', {}, h('h1', {}, tuningTitle(state.tuning)), subtitle, picker, tiles,
      h('div', { class: 'grid wide-left' }, figure.element, h('section', { class: 'panel' },
        h('h2', {}, 'Algorithms of the best records'), algorithms, h('h2', { class: 'next' }, 'Errors by kind'), errors)),
      h('section', { class: 'panel' }, h('h2', {}, 'Tasks'), tasks.element));
    return { title: tuningTitle(state.tuning), element, update, again: () => model.tunings().length !== all.length };
  }

  function shownNote() {
    const shown = model.rows.record.length;
    return shown >= model.totalTrials ? '' : ' · the newest of ' + count(model.totalTrials) + ' measurements and the best of all tasks are shown';
  }

  // ---- Task ---------------------------------------------------------------------------------------------------------

  const pointOf = (row, x, y) => ({ x, y, row });
  const openRecord = (point) => { location.hash = recordAddress(point.row); };
  const pointLabel = (point) => 'record ' + model.rows.record[point.row] + ': ' + duration(model.us(point.row)) + ', ' + sketchName(point.row);

  function trialsFigure(task) {
    const rowsWhere = (test) => task.rows.map((row, i) => pointOf(row, i + 1, model.us(row))).filter((point) => point.y !== null && test(point.row));
    return draw.figure({
      series: () => [
        { label: 'best so far', points: model.bestSoFar(task), line: true, stepped: true, color: '--series-1' },
        { label: 'measured', points: rowsWhere((row) => !model.rows.stopped_early[row] && !model.refuted(row)), color: '--series-1' },
        { label: 'stopped early', points: rowsWhere((row) => model.rows.stopped_early[row] && !model.refuted(row)), color: '--series-6', radius: 2 },
        { label: 'wrong result', points: rowsWhere(model.refuted), color: '--series-2', shape: 'crossRot', radius: 5 },
      ].filter((one) => one.points.length > 0),
      x: () => ({ title: 'trial' }), y: () => ({ title: 'time', format: duration, log: true }),
      label: pointLabel, click: openRecord,
    }, 'Measurements in order');
  }

  function predictedFigure(task) {
    const points = () => task.rows.filter((row) => model.rows.predicted_us[row] > 0 && model.us(row) > 0)
      .map((row) => pointOf(row, model.rows.predicted_us[row], model.us(row)));
    const ends = () => {
      const all = points().flatMap((point) => [point.x, point.y]);
      return all.length === 0 ? [] : [Math.min(...all), Math.max(...all)].map((value) => ({ x: value, y: value }));
    };
    return draw.figure({
      series: () => [{ label: 'candidate', points: points(), color: '--series-3' },
        { label: 'as predicted', points: ends(), line: true, dashed: true, color: '--series-6' }].filter((one) => one.points.length > 0),
      x: () => ({ title: 'predicted', format: duration, log: true }), y: () => ({ title: 'measured', format: duration, log: true }),
      label: (point) => (point.row === undefined ? '' : pointLabel(point) + ', predicted ' + duration(point.x)),
      click: (point) => point.row !== undefined && openRecord(point),
      caption: () => (points().length === 0 ? 'No candidate has a prediction yet: the first ones are chosen without a model.' : ''),
    }, 'Predicted against measured');
  }

  const sketchColumns = [
    { name: 'sketch', value: (row) => row.name, cell: (row) => named(row.name) },
    { name: 'trials', number: true, value: (row) => row.trials },
    { name: 'failed', number: true, value: (row) => row.failed },
    { name: 'best', number: true, value: (row) => row.us, cell: (row) => duration(row.us) },
    { name: 'of the best', title: 'Speed relative to the best sketch', number: true, value: (row) => row.speed,
      cell: (row) => (row.speed === null ? '–' : bar(row.speed, percent(row.speed))) },
  ];

  const sketchRows = (task) => [...task.sketches.values()].map((one) => ({ key: one.sketch, name: model.sketches[one.sketch],
    trials: one.trials, failed: one.failed, us: model.us(one.best),
    speed: one.best >= 0 ? model.us(task.best) / model.us(one.best) : null }));

  const trialColumns = [
    { name: 'record', number: true, value: (row) => model.rows.record[row], cell: (row) => link(recordAddress(row), String(model.rows.record[row])) },
    { name: 'trial', number: true, value: (row) => model.rows.trial[row] },
    { name: 'time', number: true, value: (row) => model.us(row), cell: (row) => duration(model.us(row)) },
    { name: 'predicted', number: true, value: (row) => model.rows.predicted_us[row], cell: (row) => duration(model.rows.predicted_us[row]) },
    { name: 'sketch', value: sketchName, cell: (row) => named(sketchName(row)) },
    { name: 'result', value: (row) => outcome(row), cell: (row) => outcomeBadge(row) },
    { name: 'measured at', value: (row) => model.rows.after_us[row], cell: (row) => when(model.instant(row)) },
  ];
  const outcome = (row) => {
    if (model.rows.error[row] >= 0) return model.errors[model.rows.error[row]].kind;
    return verifiedName(row) === 'unknown' && model.rows.stopped_early[row] ? 'stopped early' : verifiedName(row);
  };
  const outcomeBadge = (row) => (model.rows.error[row] >= 0 ? h('span', { class: 'badge bad' }, outcome(row)) : badge(outcome(row)));

  const errorColumns = [
    { name: 'kind', value: (row) => row.kind, cell: (row) => h('span', { class: 'mono' }, row.kind) },
    { name: 'count', number: true, value: (row) => row.count },
    { name: 'stage', value: (row) => row.stage },
    { name: 'last one', number: true, value: (row) => row.id, cell: (row) => link('#/record/' + row.id, String(row.id)) },
    { name: 'what it said', value: (row) => row.text, cell: (row) => h('span', { class: 'text' }, row.text) },
  ];
  const errorRows = (task) => [...task.errors].map(([kind, rows]) => {
    const last = rows[rows.length - 1], error = model.errors[model.rows.error[last]];
    return { key: kind, kind, count: rows.length, stage: error.stage, id: model.rows.record[last], text: error.text };
  });

  function sharesText(task) {
    const shares = model.tunings().filter((tuning) => tuning.place === task.place && tuning.name).map((tuning) => {
      const row = taskRows(tuning).find((one) => one.key === task.workload);
      return row && row.share !== null ? percent(row.share) + ' of ' + tuning.name : null;
    });
    return shares.filter(Boolean).join(', ');
  }

  function taskTiles(task) {
    const gflops = model.gflops(task, task.best);
    return [tile('Best so far', duration(model.us(task.best)), task.best >= 0 ? 'record ' + model.rows.record[task.best] : null),
      tile('Speed-up', task.best >= 0 ? (model.us(task.first) / model.us(task.best)).toFixed(2) + '×' : '–', 'over the first schedule'),
      gflops === null ? null : tile('Throughput', number(gflops) + ' GFLOP/s', null),
      tile('Share', sharesText(task).split(' of ')[0] || '–', sharesText(task).includes(',') ? sharesText(task) : 'of the estimated latency'),
      tile('Trials', count(task.trials), plural(task.failed, 'failure')), tile('Sketches tried', String(task.sketches.size), null)];
  }

  function task(key, place) {
    const workload = model.workloads.findIndex((one) => one.workload === key);
    // The number of a device differs between histories; the address of one may be opened on another.
    const found = model.tasks.get(workload + ':' + place) || [...model.tasks.values()].find((one) => one.workload === workload);
    if (!found) return missing('There is no task ' + key + ' in this history.');
    const tiles = h('div', { class: 'tiles' });
    const figures = [trialsFigure(found), predictedFigure(found)];
    const sketches = table(sketchColumns, { key: (row) => row.key, sort: 'best', caption: 'Sketches tried' });
    const errors = table(errorColumns, { key: (row) => row.key, sort: 'count', descending: true, caption: 'Errors by kind',
      none: 'No measurement has failed.' });
    const trials = table(trialColumns, { key: (row) => model.rows.record[row], sort: 'time', most: 25, filter: 'Filter by sketch or result',
      text: (row) => sketchName(row) + ' ' + outcome(row), caption: 'Measurements' });
    function update() {
      tiles.replaceChildren(...taskTiles(found).filter(Boolean));
      sketches.set(sketchRows(found));
      errors.set(errorRows(found));
      trials.set(found.rows);
      for (const one of figures) one.update();
    }
    update();
    const section = (title, content) => h('section', { class: 'panel' }, h('h2', {}, title), content);
    const element = h('div', {}, heading(found.name, model.placeName(found.place) + ' · ' + key), tiles,
      h('div', { class: 'grid' }, figures.map((one) => one.element)),
      section('Sketches tried', sketches.element), section('Errors by kind', errors.element), section('Measurements', trials.element));
    return { title: found.name, element, update };
  }

  function missing(text) {
    return { title: 'Not found', element: empty('Not found', text), again: () => true };
  }

  // ---- Record -------------------------------------------------------------------------------------------------------

  function recordFacts(record) {
    const { measurement } = record;
    const samples = (measurement.samples_us || []).map((us) => number(us)).join(', ');
    return facts([
      ['Task', record.task], ['Trial', String(record.trial)], ['Target', record.target], ['Device', record.device],
      ['Sketch', record.sketch + ' over ' + record.algorithm],
      ['Measured', measurement.error_kind ? null : duration(measurement.median_us) + (measurement.stopped_early ? ', stopped early' : '')],
      ['Failed', measurement.error_kind ? measurement.error_kind + ' at stage ' + measurement.stage : null], ['Why', measurement.text],
      ['Predicted', record.predicted_us === null ? 'no prediction' : duration(record.predicted_us)],
      ['Analytic', record.analytic_us === undefined ? null : duration(record.analytic_us)],
      ['Result', badge(record.verification)],
      ['Share', record.shares.map((one) => percent(one.share) + ' of ' + one.network + ', ' + number(one.count) + ' times').join('; ')],
      ['Samples', samples ? samples + ' µs' : null], ['Workload', record.workload]]);
  }

  // Features of large quantities are logarithms, log2(1 + x).
  function featureRow(one, i) {
    const log = one.name.endsWith(' log2');
    return { key: i, name: log ? one.name.slice(0, -5) : one.name, value: log ? 2 ** one.value - 1 : one.value };
  }

  function recordTables(record) {
    const columns = (title) => [{ name: title, value: (row) => row.name, cell: (row) => named(row.name) },
      { name: 'value', number: true, value: (row) => row.value, cell: (row) => number(row.value) }];
    const parameters = table(columns('parameter'), { key: (row) => row.key, caption: 'Configuration' });
    parameters.set(record.configuration.map((one, i) => ({ key: i, ...one })));
    const features = table(columns('feature'), { key: (row) => row.key, filter: 'Filter features', text: (row) => row.name, most: 60,
      caption: 'Features' });
    features.set((record.features || []).filter((one) => one.value !== 0 && !one.name.startsWith('parameter ')).map(featureRow));
    return tabs('Numbers', [['Configuration', parameters.element], ['Features', features.element]]);
  }

  function showRecord(record, element) {
    const code = (text, otherwise) => (text ? h('pre', { tabindex: '0' }, text) : h('p', { class: 'muted' }, otherwise));
    const row = model.rowOf.get(record.record);
    const known = row === undefined ? null : model.tasks.get(model.rows.workload[row] + ':' + model.rows.place[row]);
    const why = record.problem ? 'The schedule makes no program here: ' + record.problem : 'There is none.';
    element.replaceChildren(...heading('Record ' + record.record, known ? link(taskAddress(known), record.task) : record.task),
      h('div', { class: 'grid wide-right' },
        h('div', {}, h('section', { class: 'panel' }, recordFacts(record)), h('section', { class: 'panel' }, recordTables(record))),
        h('section', { class: 'panel' }, tabs('Program', [['Loops', code(record.loops, why)], ['Source', code(record.source, why)],
          ['Steps', code(record.steps, 'There are none.')], ['Computation', code(record.computation, 'There is none.')]]))));
  }

  function record(id) {
    const element = h('div', {}, heading('Record ' + id, 'Replaying its schedule…'));
    Diapason.live.record(id).then((found) => showRecord(found, element))
      .catch((error) => element.replaceChildren(...heading('Record ' + id, ''), empty('No details of this record', error.message)));
    return { title: 'Record ' + id, element, update: () => {} };
  }

  return { network, task, record, missing, nothing, shared: { heading, select, percent, plural, count, when, link, named, taskAddress,
    taskRows, tuningTitle, curveSeries } };
})();
