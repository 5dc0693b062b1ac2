// Pages over many tasks or runs: the roofline plot, runs of the tuner, two runs side by side.
'use strict';

(() => {
  const { model, draw, views } = Diapason;
  const { h, bar, tile, empty, table } = Diapason.tables;
  const { number, duration } = draw;
  const { heading, select, percent, plural, count, when, link, named, taskAddress, tuningTitle, curveSeries } = views.shared;

  // ---- Roofline -----------------------------------------------------------------------------------------------------

  // Tasks of a target and device that have a time and floating point operations.
  function rooflineRows(place) {
    const shares = new Map();
    for (const tuning of model.tunings().filter((one) => one.place === place)) {
      for (const row of views.shared.taskRows(tuning)) shares.set(row.key, Math.max(row.share || 0, shares.get(row.key) || 0));
    }
    return [...model.tasks.values()].filter((task) => task.place === place && task.best >= 0 && model.intensity(task) !== null)
      .map((task) => {
        const row = { task, key: task.key, name: task.name, x: model.intensity(task), y: model.gflops(task, task.best),
          share: shares.get(task.workload) || null, dtype: model.workloads[task.workload].dtype };
        const roofs = model.places[place].roofs;
        row.reached = roofs ? row.y / Math.min(row.x * roofs.bytes_per_s / 1e9, roofs.compute[0].flops_per_s / 1e9) : null;
        return row;
      });
  }

  function roofSeries(place, rows) {
    const roofs = model.places[place].roofs;
    if (!roofs || rows.length === 0) return [];
    const left = Math.min(...rows.map((row) => row.x)) / 2, right = Math.max(...rows.map((row) => row.x)) * 2;
    return roofs.compute.map((roof, i) => {
      const knee = roof.flops_per_s / roofs.bytes_per_s, top = roof.flops_per_s / 1e9;
      const points = [{ x: left, y: left * roofs.bytes_per_s / 1e9 }, { x: knee, y: top }, { x: Math.max(right, knee * 2), y: top }];
      return { label: roof.name, points: points.filter((point) => point.x >= left), line: true, dashed: i > 0,
        color: ['--series-2', '--series-3', '--series-4'][i % 3] };
    });
  }

  // Bounds of an axis with room on both sides.
  const around = (values) => (values.length === 0 ? {} : { min: Math.min(...values) / 2, max: Math.max(...values) * 2 });
  const tops = (place) => (model.places[place].roofs ? model.places[place].roofs.compute.map((roof) => roof.flops_per_s / 1e9) : []);

  function rooflineFigure(place) {
    const rows = () => rooflineRows(place);
    const figure = draw.figure({
      series: () => [{ label: 'tasks', points: rows(), color: '--series-1', radius: 5 }, ...roofSeries(place, rows())],
      x: () => ({ title: 'operations per byte of inputs and outputs', log: true, ...around(rows().map((row) => row.x)) }),
      y: () => ({ title: 'GFLOP/s', log: true, ...around([...rows().map((row) => row.y), ...tops(place)]) }),
      label: (row, name) => (row.task ? row.name + ': ' + number(row.y) + ' GFLOP/s, ' + number(row.x) + ' per byte' : name),
      click: (row) => { if (row.task) location.hash = taskAddress(row.task); },
      caption: () => (model.places[place].roofs
        ? 'Roofs are the rates that the search assumes of the device: memory bandwidth and arithmetic. Winograd and Strassen need fewer operations ' +
          'than are counted here, and caches keep what one task leaves for the next, so that a task may lie above its roof.'
        : 'Without roofs: only the machine with this device knows its rates.'),
    }, 'Best records against what the device can do');
    figure.element.classList.add('tall');
    return figure;
  }

  const rooflineColumns = [
    { name: 'task', value: (row) => row.name, cell: (row) => link(taskAddress(row.task), named(row.name)) },
    { name: 'type', value: (row) => row.dtype },
    { name: 'operations per byte', number: true, value: (row) => row.x, cell: (row) => number(row.x) },
    { name: 'GFLOP/s', number: true, value: (row) => row.y, cell: (row) => number(row.y) },
    { name: 'of the roof', title: 'Of what float32 arithmetic and memory allow', number: true, value: (row) => row.reached,
      cell: (row) => (row.reached === null ? '–' : bar(row.reached, percent(row.reached))) },
    { name: 'share', title: 'Of a network’s estimated latency', number: true, value: (row) => row.share,
      cell: (row) => (row.share === null ? '–' : percent(row.share)) },
  ];

  function placePicker(place, address) {
    if (model.places.length < 2) return null;
    return h('div', { class: 'controls' }, select('Device', model.places.map((_, i) => [i, model.placeName(i)]), place,
      (value) => { location.hash = address + value; }));
  }

  views.roofline = (given) => {
    const place = Number(given || 0);
    if (model.places.length === 0) return views.nothing();
    if (!model.places[place]) return views.missing('There is no such device in this history.');
    const figure = rooflineFigure(place);
    const tasks = table(rooflineColumns, { key: (row) => row.key, sort: 'share', descending: true, filter: 'Filter tasks',
      text: (row) => row.name, caption: 'Tasks of the roofline plot', none: 'No task with floating point operations has a time yet.' });
    const update = () => {
      figure.update();
      tasks.set(rooflineRows(place));
    };
    update();
    const element = h('div', {}, heading('Roofline', model.placeName(place)), placePicker(place, '#/roofline/'), figure.element,
      h('section', { class: 'panel' }, h('h2', {}, 'Tasks'), tasks.element));
    return { title: 'Roofline', element, update };
  };

  // ---- Runs ---------------------------------------------------------------------------------------------------------

  function runRows() {
    const counts = new Map();
    model.rows.run.forEach((run, row) => {
      const found = counts.get(run) || { trials: 0, failed: 0, last: row };
      found.trials++;
      found.failed += model.rows.error[row] >= 0 ? 1 : 0;
      found.last = row;
      counts.set(run, found);
    });
    return model.runs.map((run) => ({ ...run, trials: 0, failed: 0, ...counts.get(run.run) }));
  }

  function lasted(run) {
    if (!run.ended_at) return null;
    return (Date.parse(run.ended_at) - Date.parse(run.started_at)) * 1e3;
  }

  function runBefore(run) {
    const at = model.runs.findIndex((one) => one.run === run.run);
    return at > 0 ? model.runs[at - 1].run : null;
  }

  const runColumns = [
    { name: 'run', number: true, value: (run) => run.run },
    { name: 'started', value: (run) => run.started_at, cell: (run) => when(run.started_at) },
    { name: 'lasted', number: true, value: lasted, cell: (run) => (run.ended_at ? duration(lasted(run)) : 'runs, or was killed') },
    { name: 'measurements', number: true, value: (run) => run.trials, cell: (run) => count(run.trials) },
    { name: 'failed', number: true, value: (run) => run.failed, cell: (run) => count(run.failed) },
    { name: 'compare', value: runBefore,
      cell: (run) => (runBefore(run) === null ? '–' : link('#/compare/' + runBefore(run) + '/' + run.run, 'with run ' + runBefore(run))) },
    { name: 'host', value: (run) => run.host },
    { name: 'command', value: (run) => run.command_line, cell: (run) => h('code', { class: 'text' }, run.command_line) },
  ];

  views.runs = () => {
    if (model.runs.length === 0) return views.nothing();
    const runs = table(runColumns, { key: (run) => run.run, sort: 'run', descending: true, filter: 'Filter by host or command',
      text: (run) => run.host + ' ' + run.command_line, caption: 'Runs of the tuner' });
    const update = () => runs.set(runRows());
    update();
    const element = h('div', {}, heading('Runs', 'Runs of the tuner that have measured into this history.'),
      h('section', { class: 'panel' }, runs.element));
    return { title: 'Runs', update, element };
  };

  // ---- Two runs side by side ----------------------------------------------------------------------------------------

  function pairRows(pair) {
    return [...model.tasks.values()].map((task) => {
      const [a, b] = pair.map((run) => model.summaryOfRun(task, run));
      const aUs = model.us(a.best), bUs = model.us(b.best);
      return { key: task.key, task, name: task.name, a, b, aUs, bUs, ratio: aUs !== null && bUs !== null ? bUs / aUs : null };
    }).filter((row) => row.a.trials + row.b.trials > 0);
  }

  const ratioCell = (row) => {
    if (row.ratio === null) return '–';
    const tone = row.ratio < 0.99 ? 'good' : row.ratio > 1.01 ? 'bad' : '';
    const text = tone === '' ? 'equal' : tone === 'good' ? (1 / row.ratio).toFixed(2) + '× faster' : row.ratio.toFixed(2) + '× slower';
    return h('span', { class: 'badge ' + tone }, text);
  };

  const pairColumns = (pair) => [
    { name: 'task', value: (row) => row.name, cell: (row) => link(taskAddress(row.task), named(row.name)) },
    { name: 'run ' + pair[0], number: true, value: (row) => row.aUs, cell: (row) => duration(row.aUs) },
    { name: 'run ' + pair[1], number: true, value: (row) => row.bUs, cell: (row) => duration(row.bUs) },
    { name: 'run ' + pair[1] + ' is', number: true, value: (row) => row.ratio, cell: ratioCell },
    ...pair.map((run, i) => ({ name: 'trials of ' + run, number: true, value: (row) => (i === 0 ? row.a : row.b).trials })),
    ...pair.map((run, i) => ({ name: 'failed of ' + run, number: true, value: (row) => (i === 0 ? row.a : row.b).failed })),
  ];

  function pairTiles(pair, rows) {
    const both = rows.filter((row) => row.ratio !== null);
    const mean = both.length > 0 ? Math.exp(both.reduce((sum, row) => sum + Math.log(row.ratio), 0) / both.length) : null;
    const text = mean === null ? '–' : mean < 1 ? (1 / mean).toFixed(2) + '× faster' : mean.toFixed(2) + '× slower';
    return [tile('Run ' + pair[1] + ' is', text, 'geometric mean of ' + plural(both.length, 'task') + ' of both'),
      tile('Faster in run ' + pair[1], String(both.filter((row) => row.ratio < 0.99).length), 'tasks'),
      tile('Faster in run ' + pair[0], String(both.filter((row) => row.ratio > 1.01).length), 'tasks'),
      tile('In one run alone', String(rows.length - both.length), 'tasks')];
  }

  // Of the tasks that both runs have timed, so that the two are of the same work.
  function pairFigure(pair, tuning, both) {
    const ofRun = (run) => (row) => model.rows.run[row] === run;
    return draw.figure({
      series: () => pair.map((run, i) => ({ label: 'run ' + run, points: curveSeries(tuning, 'n', ofRun(run), (one) => both.has(one)), line: true,
        stepped: true, color: i === 0 ? '--series-6' : '--series-1' })),
      x: () => ({ title: 'measurements of the run' }), y: () => ({ title: 'estimated latency', format: duration }),
      label: (point, name) => name + ': ' + duration(point.y) + ' after ' + plural(point.n, 'measurement'),
      caption: () => 'Of the ' + plural(both.size, 'task') + ' that both runs have timed, by the measurements of each run alone.',
    }, tuningTitle(tuning) + ' on ' + model.places[tuning.place].device);
  }

  function pairFigures(pair) {
    const timedBy = (task, run) => model.summaryOfRun(task, run).best >= 0;
    return model.tunings().filter((tuning) => tuning.name).map((tuning) => {
      const tasks = tuning.tasks.filter(({ link: one, task }) => task && one.count > 0 && pair.every((run) => timedBy(task, run)));
      return { tuning, both: new Set(tasks.map((one) => one.task.workload)) };
    }).filter((one) => one.both.size > 0).slice(0, 4).map(({ tuning, both }) => pairFigure(pair, tuning, both));
  }

  views.compare = (a, b) => {
    const pair = [Number(a), Number(b)];
    if (!pair.every((run) => model.runs.some((one) => one.run === run))) {
      return views.missing('There are no two runs ' + a + ' and ' + b + ' in this history.');
    }
    const tiles = h('div', { class: 'tiles' }), figures = pairFigures(pair);
    const tasks = table(pairColumns(pair), { key: (row) => row.key, sort: 'run ' + pair[1] + ' is', filter: 'Filter tasks', text: (row) => row.name,
      caption: 'Tasks of both runs' });
    const update = () => {
      const rows = pairRows(pair);
      tiles.replaceChildren(...pairTiles(pair, rows));
      tasks.set(rows);
      for (const figure of figures) figure.update();
    };
    update();
    const options = model.runs.map((run) => [run.run, 'run ' + run.run + ' · ' + when(run.started_at) + ' · ' + run.host]);
    const go = (i) => (value) => { location.hash = '#/compare/' + (i === 0 ? value + '/' + b : a + '/' + value); };
    const element = h('div', {}, heading('Run ' + a + ' and run ' + b, 'Best times of each task, of the measurements of each run alone.'),
      h('div', { class: 'controls' }, select('Compare', options, a, go(0)), select('with', options, b, go(1))), tiles,
      figures.length > 0 ? h('div', { class: figures.length > 1 ? 'grid' : '' }, figures.map((figure) => figure.element))
        : empty('No network in common', 'Both runs have timed no task of the same network.'),
      h('section', { class: 'panel' }, h('h2', {}, 'Tasks'), tasks.element));
    return { title: 'Run ' + a + ' and run ' + b, element, update };
  };
})();
