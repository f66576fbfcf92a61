// What the page does by itself: it shows a round, derives the UEs' table from the frames up to it, follows a UE, and
// takes the colours of a light or a dark ground. It runs the same beside a server and in a report.

const origin =
  cb_obj === slider ? "slider" : cb_obj === run ? "run" : cb_obj === ue_picked ? "ue" : cb_obj === pulse ? "data"
  : cb_obj === cells.selected ? "cell" : cb_obj === ues.selected ? "dot" : cb_obj === window_of_rounds ? "pan" : "ready"
const state = (window.fedslot ??= {following: true, busy: false, theme: null})
if (state.busy) return
state.busy = true
try {
  refresh()
} finally {
  state.busy = false
}

function refresh() {
  const said = pulse.tags.length ? JSON.parse(pulse.tags[0]) : {}
  if (said.reload) {
    window.location.reload()
    return
  }
  if (origin === "ready") choose_theme()
  if (origin === "data" || origin === "ready") tell(said)
  if (origin === "run" && all_rounds.length) {
    const index = run.options.indexOf(run.value)
    rounds.data = all_rounds[index].data
    frames.data = all_frames[index].data
    state.following = true
  }
  if (origin === "pan") {
    show_cells()
    return
  }
  if (origin === "cell") pick(cells)
  if (origin === "dot") pick(ues)
  const at = scrub()
  if (at === null) return
  show_round(at)
  const table = count_ues(at)
  show_ues(table)
  follow(table)
}

// The round that is shown: the last one, unless the slider was moved back.
function scrub() {
  const known = rounds.data.round
  if (!known.length) return null
  const first = known[0]
  const last = known[known.length - 1]
  if (origin === "slider") state.following = slider.value >= last
  slider.start = first
  slider.end = Math.max(last, first + 1)
  if (state.following || slider.value > last || slider.value < first) slider.value = last
  return slider.value
}

function show_round(at) {
  const data = rounds.data
  const i = Math.min(Math.max(0, at - data.round[0]), data.round.length - 1)
  const wide = frames_plot.inner_width || 900
  const many = Math.min(90, Math.max(16, Math.round(wide / 26)))
  const start = Math.max(data.round[0], at - many + 1)
  if (state.at !== at || state.many !== many) { // else the user may have moved the window
    window_of_rounds.start = start - 0.5
    window_of_rounds.end = start + many - 0.5
  }
  Object.assign(state, {at, many})
  show_cells()
  for (const cursor of cursors) {
    cursor.left = at - 0.5
    cursor.right = at + 0.5
  }
  here.data = {slots_spent: [data.slots_spent[i]], accuracy: [data.accuracy[i]]}
  const words = [
    `round ${at}: accuracy ${data.accuracy[i].toFixed(3)} after ${data.slots_spent[i]} slots`,
    `${data.pulled[i]} pulled, ${data.pushed[i]} pushed, ${data.collided[i]} collided, ${data.wasted[i]} wasted`,
  ]
  if (data.training[i] + data.holding[i] > 0) words.push(`${data.training[i]} train, ${data.holding[i]} wait with an update`)
  write("fs-round", words.join(" · "))
}

// The slots of the rounds in sight.
function show_cells() {
  const {start, end} = window_of_rounds
  const {round} = frames.data
  let first = 0
  let last = round.length
  while (first < last && round[first] < start - 1) first++
  while (last > first && round[last - 1] > end + 1) last--
  const shown = Object.fromEntries(Object.entries(frames.data).map(([name, column]) => [name, column.slice(first, last)]))
  const who = Array.from(shown.ue, (ue) => (Number.isNaN(ue) ? "nobody" : `UE ${ue}`))
  cells.data = {...shown, who, about: Array.from(shown.value, (value, i) => describe(value, shown.noise[i], NaN, shown.staleness[i]))}
  labels.visible = (frames_plot.inner_width || 900) / (end - start) >= 21 // else the numbers overlap
}

// Value and noise in words, as far as the PS knows them, and the age of a received update.
function describe(value, noise, sd = NaN, staleness = NaN) {
  const words = []
  if (!Number.isNaN(value)) words.push(`value ${value.toPrecision(3)}` + (sd > 0 ? ` ± ${sd.toPrecision(2)}` : ""))
  if (!Number.isNaN(noise)) words.push(`noise ${noise.toPrecision(3)}`)
  if (staleness > 0) words.push(`age ${staleness} frames`)
  return words.join(", ")
}

// What is known of each UE after a round, from the frames so far.
function count_ues(at) {
  const {round, event, ue, value, noise, slot} = frames.data
  const table = new Map()
  let barred = false
  for (let i = 0; i < round.length; i++) {
    if (event[i] === "barred") barred = true
    if (round[i] > at || Number.isNaN(ue[i])) continue
    let known = table.get(ue[i])
    if (!known) table.set(ue[i], (known = {ue: ue[i], received: 0, collided: 0, n: 0, mean: 0, squares: 0, round: -1}))
    const again = known.round === round[i] // copies on a coded channel
    Object.assign(known, {value: value[i], noise: noise[i], round: round[i]})
    if (again) continue
    if (event[i] === "collided") known.collided += 1
    if (event[i] !== "pulled" && event[i] !== "pushed") continue
    known.received += 1
    if (Number.isNaN(value[i])) continue
    known.n += 1
    const step = value[i] - known.mean
    known.mean += step / known.n
    known.squares += step * (value[i] - known.mean)
  }
  frames_plot.y_range.end = barred ? -0.5 : 0.5
  const held = round.length ? round[0] : 0
  write("fs-frames", round.length ? (held > 0 ? `frames since round ${held}` : "") : "this run has no frames.csv; --frames writes it")
  return [...table.values()]
}

function show_ues(table) {
  const valued = table.filter((known) => known.n > 0)
  const by_value = valued.length > 0
  const shown = by_value ? valued : table.filter((known) => known.received > 0)
  const height = (known) => (by_value ? known.value : known.received)
  shown.sort((a, b) => height(b) - height(a) || a.ue - b.ue)
  const sd = shown.map((known) => (known.n > 1 ? Math.sqrt(known.squares / (known.n - 1)) : NaN))
  const heights = shown.map(height)
  ues.data = {
    rank: shown.map((_, i) => i + 1),
    ue: shown.map((known) => known.ue),
    height: heights,
    low: heights.map((y, i) => (by_value && sd[i] > 0 ? y - sd[i] : y)),
    high: heights.map((y, i) => (by_value && sd[i] > 0 ? y + sd[i] : y)),
    value: shown.map((known) => known.value),
    about: shown.map((known, i) => describe(known.value, known.noise, sd[i])),
    received: shown.map((known) => known.received),
    collided: shown.map((known) => known.collided),
  }
  counts.high = Math.max(1, ...shown.map((known) => known.received))
  ues_plot.left[0].axis_label = by_value ? "value" : "times received"
  const words = by_value ? "± standard deviation over receptions" : "this strategy keeps no values"
  write("fs-ues", shown.length ? words : "")
}

// Follow the UE that was tapped; nothing stays selected, so that it can be tapped again.
function pick(source) {
  const tapped = source.selected.indices.map((i) => source.data.ue[i]).filter((ue) => !Number.isNaN(ue))
  source.selected.indices = []
  if (tapped.length) ue_picked.value = tapped[0]
}

// The slots and the value of one UE over all rounds.
function follow(table) {
  const wanted = ue_picked.value
  const {round, slot, event, ue, value, noise, staleness, x, width} = frames.data
  const rows = []
  if (wanted !== null) for (let i = 0; i < ue.length; i++) if (ue[i] === wanted) rows.push(i)
  const take = (column) => rows.map((i) => column[i])
  const values = take(value)
  const by_value = values.some((each) => !Number.isNaN(each))
  let times_received = 0
  const receptions = take(event).map((each) => (times_received += each === "pulled" || each === "pushed"))
  followed.data = {
    round: take(round), slot: take(slot), event: take(event), height: by_value ? values : receptions,
    about: rows.map((i) => describe(value[i], noise[i], NaN, staleness[i])), x: take(x), width: take(width),
  }
  followed_plot.left[0].axis_label = by_value || !rows.length ? "value" : "times received"
  const i = wanted === null ? -1 : ues.data.ue.indexOf(wanted)
  ring.data = i < 0 ? {rank: [], height: []} : {rank: [ues.data.rank[i]], height: [ues.data.height[i]]}
  const known = table.find((each) => each.ue === wanted)
  const times = (n, word) => `${word} ${n} ${n === 1 ? "time" : "times"}`
  write(
    "fs-followed",
    wanted === null ? "Tap a slot or a UE to follow it"
    : known ? `UE ${wanted}: ${times(known.received, "received")}, ${times(known.collided, "collided")}`
    : `UE ${wanted}: not on the air so far`,
  )
}

function tell(said) {
  write("fs-status", said.status ?? "")
  write("fs-fault", said.fault ?? "")
  const bar = document.getElementById("fs-progress")
  if (bar && said.done !== undefined) bar.value = said.done
}

function write(id, text) {
  const element = document.getElementById(id)
  if (element && element.textContent !== text) element.textContent = text
}

// Colours of the ground: as the system has it, or as the button said; a report is always light.
function choose_theme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  const stored = () => {
    try { return window.localStorage.getItem("fedslot-theme") } catch { return null }
  }
  const is_dark = () => !always_light && (stored() ? stored() === "dark" : system.matches)
  const apply = () => paint(is_dark())
  system.addEventListener("change", apply)
  const button = document.getElementById("fs-theme")
  if (button) button.addEventListener("click", () => {
    try { window.localStorage.setItem("fedslot-theme", is_dark() ? "light" : "dark") } catch { /* this page only */ }
    apply()
  })
  apply()
}

function paint(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light"
  const which = dark ? 1 : 0
  for (const [i, model] of painted.entries()) model[properties[i]] = colors[i][which]
  counts.palette = palettes_of_counts[which]
  for (const mapper of palettes) mapper.palette = event_colors[which]
  const text = ["#444444", "#c3c8d0"][which]
  const line = ["#8a8a8a", "#6a707a"][which]
  const grid = ["#e4e4e4", "#2d3138"][which]
  for (const plot of plots) {
    for (const axis of [...plot.below, ...plot.left]) axis.setv({
      major_label_text_color: text, axis_label_text_color: text, axis_line_color: line, major_tick_line_color: line,
    })
    for (const each of plot.center) if (each.type === "Grid") each.grid_line_color = grid
  }
}
