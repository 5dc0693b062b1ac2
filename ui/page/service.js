// Pages of a running service: its jobs and its fleet.
'use strict';

(() => {
  const { model, draw, views } = Diapason;
  const { h, bar, tile, empty, table, facts } = Diapason.tables;
  const { number, duration } = draw;
  const { heading, percent, plural, count, when, link, named } = views.shared;

  const tones = { done: 'good', ready: 'good', failed: 'bad', quarantined: 'bad' };
  const stateBadge = (state) => h('span', { class: 'badge ' + (tones[state] || '') }, state);
  const rate = (value) => (value > 0 ? number(value, 3) + '/s' : '–');

  // Of its limit of trials or of time, whichever is nearer.
  function progressOf(job) {
    const shares = [job.trial_limit ? job.trials / job.trial_limit : 0, job.time_limit_s ? job.elapsed_s / job.time_limit_s : 0];
    return job.trial_limit || job.time_limit_s ? Math.min(1, Math.max(...shares)) : null;
  }

  const jobColumns = [
    { name: 'job', number: true, value: (job) => job.job, cell: (job) => link('#/job/' + job.job, String(job.job)) },
    { name: 'network', value: (job) => job.model, cell: (job) => named(job.model) },
    { name: 'target', value: (job) => job.target, cell: (job) => named(job.target) },
    { name: 'state', value: (job) => job.state, cell: (job) => stateBadge(job.state) },
    { name: 'progress', number: true, value: progressOf,
      cell: (job) => (progressOf(job) === null ? '–' : bar(progressOf(job), percent(progressOf(job)))) },
    { name: 'trials', number: true, value: (job) => job.trials, cell: (job) => count(job.trials) },
    { name: 'failed', number: true, value: (job) => job.failed, cell: (job) => count(job.failed) },
    { name: 'rate', number: true, value: (job) => job.trials_per_s, cell: (job) => rate(job.trials_per_s) },
    { name: 'estimated latency', number: true, value: (job) => job.estimated_us, cell: (job) => duration(job.estimated_us) },
    { name: 'owner', value: (job) => job.owner, cell: (job) => job.owner || '–' },
    { name: 'submitted', value: (job) => job.submitted_at, cell: (job) => when(job.submitted_at) },
  ];

  // The service may be unable to say for the moment.
  const trouble = (document) => (document && document.error ? h('p', { class: 'notice' }, document.error) : null);
  const jobsNow = () => (model.jobs && model.jobs.jobs) || [];

  views.jobs = () => {
    const jobs = table(jobColumns, { key: (job) => job.job, sort: 'job', descending: true, filter: 'Filter jobs', caption: 'Jobs',
      text: (job) => [job.model, job.target, job.state, job.owner].join(' '), none: 'No job matches.' });
    const notice = h('div'), summary = h('p', { class: 'sub' });
    const filled = jobsNow().length > 0;
    const update = () => {
      const states = new Map();
      for (const job of jobsNow()) states.set(job.state, (states.get(job.state) || 0) + 1);
      summary.textContent = [...states].map(([state, jobsOf]) => jobsOf + ' ' + state).join(', ') || 'Nobody has submitted one yet.';
      notice.replaceChildren(...[trouble(model.jobs)].filter(Boolean));
      jobs.set(jobsNow());
    };
    update();
    return { title: 'Jobs', update, again: () => filled !== jobsNow().length > 0, element: h('div', {}, h('h1', {}, 'Jobs'), summary, notice,
      filled ? h('section', { class: 'panel' }, jobs.element)
        : empty('No jobs', '`diapason submit NETWORK --target TARGET --service HOST:PORT` hands one in.')) };
  };

  const jobTaskColumns = [
    { name: 'task', value: (task) => task.task, cell: (task) => named(task.task) },
    { name: 'count', number: true, value: (task) => task.count },
    { name: 'trials', number: true, value: (task) => task.trials },
    { name: 'failed', number: true, value: (task) => task.failed },
    { name: 'fallback', number: true, value: (task) => task.fallback_us, cell: (task) => duration(task.fallback_us) },
    { name: 'best', number: true, value: (task) => task.best_us, cell: (task) => duration(task.best_us) },
    { name: 'sketch', value: (task) => task.sketch, cell: (task) => named(task.sketch) },
    { name: 'record', number: true, value: (task) => task.record,
      cell: (task) => (task.record > 0 ? link('#/record/' + task.record, String(task.record)) : '–') },
  ];

  const jobFacts = (job) => facts([['State', stateBadge(job.state)], ['Why', job.text], ['Stopped', job.stop_reason], ['Target', job.target],
    ['Owner', job.owner], ['Priority', String(job.priority)], ['Submitted', when(job.submitted_at)], ['Started', when(job.started_at)],
    ['Ended', when(job.ended_at)], ['Network check', job.check ? job.check.text : null],
    ['Warnings', job.warnings.length > 0 ? job.warnings.join('; ') : null],
    ['Errors', Object.entries(job.errors).map(([kind, number]) => kind + ' ' + number).join(', ')]]);

  const jobTiles = (job) => [
    tile('Estimated latency', duration(job.estimated_us),
      job.estimated_fallback_us ? 'fallback schedules: ' + duration(job.estimated_fallback_us) : null),
    tile('Trials', count(job.trials), plural(job.failed, 'failure')), tile('Rate', rate(job.trials_per_s), null),
    tile('Tuning time', duration(job.elapsed_s * 1e6), progressOf(job) === null ? null : percent(progressOf(job)) + ' of its limit')];

  // The list has no tasks; those of the job are asked for again whenever it has changed.
  views.job = (id) => {
    const find = () => jobsNow().find((job) => job.job === id);
    if (!find()) return views.missing('There is no job ' + id + ' among the newest of this service.');
    const tiles = h('div', { class: 'tiles' }), about = h('section', { class: 'panel' });
    const tasks = table(jobTaskColumns, { key: (task) => task.task_id, caption: 'Tasks of the job', filter: 'Filter tasks', text: (task) => task.task,
      none: 'It has not been partitioned into tasks yet.' });
    let shown = '', asking = false;
    const readTasks = async () => {
      if (asking) return;
      asking = true;
      const job = await Diapason.live.job(id).catch(() => null);  // the next change asks again
      asking = false;
      if (job) tasks.set(job.tasks);
    };
    const update = () => {
      const job = find(), now = JSON.stringify(job);
      if (!job || now === shown) return;
      shown = now;
      tiles.replaceChildren(...jobTiles(job));
      about.replaceChildren(jobFacts(job));
      readTasks();
    };
    update();
    return { title: 'Job ' + id, update, element: h('div', {}, heading('Job ' + id, find().model), tiles, about,
      h('section', { class: 'panel' }, h('h2', {}, 'Tasks'), tasks.element)) };
  };

  // ---- Fleet --------------------------------------------------------------------------------------------------------

  const fleetNow = () => (model.fleet && model.fleet.fleet) || { devices: [], queues: [], device_models: [] };
  const deviceState = (one) => [stateBadge(one.state), one.excluded ? h('span', { class: 'badge bad' }, 'excluded') : null,
    one.drifts ? h('span', { class: 'badge bad' }, 'drifts ' + one.drift.toFixed(2) + '×') : null].filter(Boolean);

  const deviceColumns = [
    { name: 'worker', value: (one) => one.worker, cell: (one) => named(one.worker) },
    { name: 'host', value: (one) => one.host },
    { name: 'device', value: (one) => one.device, cell: (one) => named(one.device) },
    { name: 'target', value: (one) => one.target, cell: (one) => named(one.target) },
    { name: 'state', value: (one) => one.state, version: (one) => [one.state, one.excluded, one.drift].join(),
      cell: (one) => h('span', {}, deviceState(one)) },
    { name: 'leases', number: true, value: (one) => one.leases },
    { name: 'busy', number: true, value: (one) => one.utilisation, cell: (one) => bar(one.utilisation, percent(one.utilisation)) },
    { name: 'trials', number: true, value: (one) => one.trials_per_s, cell: (one) => rate(one.trials_per_s) },
    { name: 'errors', number: true, value: (one) => one.error_rate, cell: (one) => percent(one.error_rate) },
    { name: 'seen', title: 'Age of its last report', number: true, value: (one) => Math.round(one.last_seen_s),
      cell: (one) => Math.round(one.last_seen_s) + ' s ago' },
    { name: 'why', value: (one) => one.reason, cell: (one) => h('span', { class: 'text' }, one.reason || '–') },
  ];
  const queueColumns = [
    { name: 'queue', value: (one) => one.queue, cell: (one) => named(one.queue) },
    { name: 'priority', number: true, value: (one) => one.priority }, { name: 'weight', number: true, value: (one) => one.weight },
    { name: 'pending', number: true, value: (one) => one.pending }, { name: 'leased', number: true, value: (one) => one.leased },
    { name: 'done', number: true, value: (one) => one.done, cell: (one) => count(one.done) },
  ];

  const modelColumns = [
    { name: 'device model', value: (one) => one.device || 'any', cell: (one) => named(one.device || 'any model') },
    { name: 'kind', value: (one) => one.target_kind },
    { name: 'devices', number: true, value: (one) => one.total }, { name: 'free', number: true, value: (one) => one.free },
    { name: 'quarantined', number: true, value: (one) => one.quarantined },
    { name: 'pending', title: 'Measurements that wait for one', number: true, value: (one) => one.pending },
  ];

  function fleetTiles(fleet) {
    const inState = (state) => fleet.devices.filter((one) => one.state === state).length;
    const sum = (list, name) => list.reduce((total, one) => total + one[name], 0);
    return [tile('Devices', String(fleet.devices.length), inState('ready') + ' ready'),
      tile('Leases', count(sum(fleet.devices, 'leases')), 'being measured'),
      tile('Pending', count(sum(fleet.queues, 'pending')), 'in ' + plural(fleet.queues.length, 'queue')),
      tile('Quarantined', String(inState('quarantined')), 'by their probes'),
      tile('Rate', rate(sum(fleet.devices, 'trials_per_s')), 'of the last minute')];
  }

  views.fleet = () => {
    const tiles = h('div', { class: 'tiles' }), notice = h('div');
    const devices = table(deviceColumns, { key: (one) => one.worker + ' ' + one.name + ' ' + one.uuid, sort: 'worker',
      filter: 'Filter devices', caption: 'Devices',
      text: (one) => [one.worker, one.host, one.device, one.target, one.state].join(' '),
      none: 'No worker is connected: `diapason worker --tracker HOST:PORT --devices cpu` brings the devices of its machine.' });
    const queues = table(queueColumns, { key: (one) => one.queue, sort: 'pending', descending: true, caption: 'Queues',
      none: 'Nobody is measuring.' });
    const models = table(modelColumns, { key: (one) => one.target_kind + ' ' + one.device, sort: 'device model', caption: 'Models of devices',
      none: 'None.' });
    const update = () => {
      const fleet = fleetNow();
      notice.replaceChildren(...[trouble(model.fleet)].filter(Boolean));
      tiles.replaceChildren(...fleetTiles(fleet));
      devices.set(fleet.devices);
      queues.set(fleet.queues);
      models.set(fleet.device_models);
    };
    update();
    const section = (title, content) => h('section', { class: 'panel' }, h('h2', {}, title), content);
    return { title: 'Fleet', update, element: h('div', {}, heading('Fleet', 'Devices that measure, and who waits for them.'), notice, tiles,
      section('Devices', devices.element),
      h('div', { class: 'grid' }, section('Queues', queues.element), section('Models', models.element))) };
  };
})();
