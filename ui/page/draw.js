// Charts: a thin layer over Chart.js that takes colours and type from the style sheet.
'use strict';

Diapason.draw = (() => {
  const charts = new Set();
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const series = (i) => css('--series-' + (i % 6 + 1));

  // With so many significant digits; `padded` keeps zeros at the end, so that a column of numbers is aligned.
  function number(value, digits = 4, padded = false) {
    if (value === null || value === undefined || !Number.isFinite(value)) return '–';
    if (value === 0) return '0';
    const magnitude = Math.floor(Math.log10(Math.abs(value)));
    if (magnitude >= digits - 1) return Math.round(value).toLocaleString('en-US');
    const text = value.toFixed(Math.max(0, Math.min(20, digits - 1 - magnitude)));
    return padded ? text : text.replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
  }

  function duration(us, padded = true) {
    if (us === null || us === undefined || !Number.isFinite(us)) return '–';
    if (us < 1e3) return number(us, 4, padded) + ' µs';
    if (us < 1e6) return number(us / 1e3, 4, padded) + ' ms';
    if (us < 600e6) return number(us / 1e6, 4, padded) + ' s';
    return number(us / 60e6, 4, padded) + ' min';
  }
  const tickOfDuration = (us) => duration(us, false);

  // Lines of a logarithmic axis at round numbers, fewer on a long one.
  function logTicks(drawn) {
    const decades = Math.log10(drawn.max / drawn.min), ticks = [];
    const leads = decades > 3 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
    for (let power = Math.floor(Math.log10(drawn.min)); power <= Math.log10(drawn.max); power++) {
      for (const lead of leads) {
        const value = lead * 10 ** power;
        if (value >= drawn.min && value <= drawn.max) ticks.push({ value });
      }
    }
    if (ticks.length > 1) drawn.ticks = ticks;
  }

  function axis(options) {
    const format = options.format === duration ? tickOfDuration : number;
    return {
      type: options.log ? 'logarithmic' : 'linear',
      title: { display: true, text: options.title, color: css('--muted') },
      grid: { color: css('--line'), tickColor: css('--line'), borderColor: css('--line') },
      ticks: { color: css('--muted'), maxRotation: 0, callback: (value) => format(value), maxTicksLimit: 9 },
      afterBuildTicks: options.log ? logTicks : undefined,
      min: options.min, max: options.max, beginAtZero: options.zero === true,
    };
  }

  function dataset(one, i) {
    const color = one.color ? css(one.color) : series(i);
    return {
      label: one.label, data: one.points, showLine: one.line === true, stepped: one.stepped ? 'after' : false,
      borderColor: color, backgroundColor: one.line && !one.dots ? color : color + (one.solid ? '' : 'b0'),
      borderDash: one.dashed ? [5, 4] : [], borderWidth: one.line ? 2 : 0, pointStyle: one.shape || 'circle',
      pointRadius: one.line && !one.dots ? 0 : (one.radius || 3), pointHoverRadius: (one.radius || 3) + 2, pointHitRadius: 6,
      pointBorderWidth: one.shape === 'crossRot' ? 1.5 : 0, pointBorderColor: color, order: one.line ? 0 : 1,
    };
  }

  function configuration(chart) {
    return {
      type: 'scatter',
      data: { datasets: chart.series().map(dataset) },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: { mode: chart.mode || 'nearest', axis: 'xy', intersect: chart.mode !== 'index' },
        scales: { x: axis(chart.x()), y: axis(chart.y()) },
        plugins: {
          legend: { display: chart.legend !== false, position: 'top', align: 'end',
            labels: { color: css('--ink'), usePointStyle: true, boxWidth: 8, boxHeight: 8 } },
          tooltip: { displayColors: false, callbacks: { label: (item) => chart.label(item.raw, item.dataset.label) } },
        },
        onClick: (_, items, drawn) => {
          if (items.length > 0 && chart.click) chart.click(drawn.data.datasets[items[0].datasetIndex].data[items[0].index]);
        },
      },
    };
  }

  function applyFont() {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 12;
  }

  // `chart`: {series(): [{label, points, line, stepped, dashed, color, shape}], x(): axis, y(): axis, label(point, name),
  // click(point), caption()}. Returns {element, update()}.
  function figure(chart, title) {
    const { h } = Diapason.tables;
    const canvas = h('canvas', { role: 'img', 'aria-label': title });
    const caption = h('figcaption', {}, chart.caption ? chart.caption() : '');
    const element = h('figure', { class: 'panel chart' }, h('div', { class: 'head' }, h('h2', {}, title), chart.tools ? chart.tools() : null),
      h('div', { class: 'canvas' }, canvas), caption);
    const handle = { element, canvas, drawn: null };
    handle.draw = () => {
      if (handle.drawn) handle.drawn.destroy();
      applyFont();
      handle.drawn = new Chart(canvas, configuration(chart));
    };
    handle.update = () => {
      if (chart.caption) caption.textContent = chart.caption();
      if (!handle.drawn) return;
      const next = configuration(chart);
      handle.drawn.data.datasets = next.data.datasets;
      handle.drawn.options.scales = next.options.scales;
      handle.drawn.update('none');
    };
    charts.add(handle);
    return handle;
  }

  // To be called when the figures of a view are in the document, which their sizes come from.
  function drawAll() {
    for (const handle of charts) handle.draw();
  }

  function forgetAll() {
    for (const handle of charts) if (handle.drawn) handle.drawn.destroy();
    charts.clear();
  }

  return { css, number, duration, figure, drawAll, forgetAll };
})();
