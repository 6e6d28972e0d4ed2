// A player with its waveform: click or use the arrows to seek. Recordings inside the page are Opus.

const LONGEST = 60; // seconds of a recording that are inside a page
const addresses = new Map();

function addressOf(sound) {
  if (!addresses.has(sound)) addresses.set(sound, URL.createObjectURL(new Blob([bytesOf(sound.opus)], { type: "audio/ogg; codecs=opus" })));
  return addresses.get(sound);
}

// The recording of a row relative to the page, which is where it is on the disk.
function linkTo(path, folder, start, seconds) {
  if (!path || path.includes("://")) return null;
  const [from, to] = [folder, path].map((each) => each.split("/").filter(Boolean));
  let common = 0;
  while (common < from.length && common < to.length - 1 && from[common] === to[common]) common++;
  const parts = [...from.slice(common).map(() => ".."), ...to.slice(common).map(encodeURIComponent)];
  const slice = start === null || start === undefined ? "" : `#t=${start},${start + (seconds || 0)}`;
  return parts.join("/") + slice;
}

function waveform(peaks, audio) {
  const [width, height] = [720, 64];
  const columns = Array.from(peaks, (each, place) => {
    const tall = Math.max(1, (each / 255) * (height - 4));
    return svg("rect", { x: (place * width) / peaks.length, y: (height - tall) / 2, width: width / peaks.length - 0.8, height: tall });
  });
  const played = svg("rect", { class: "played", x: 0, y: 0, width: 0, height });
  const picture = svg("svg", { class: "waveform", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "slider", tabindex: "0", "aria-label": "Position in the recording", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": "0" }, played, ...columns);
  const seek = (part) => { if (Number.isFinite(audio.duration)) audio.currentTime = Math.max(0, Math.min(1, part)) * audio.duration; };
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    seek((event.clientX - box.left) / box.width);
  });
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -0.05, ArrowRight: 0.05 }[event.key];
    if (move) { seek(audio.currentTime / audio.duration + move); event.preventDefault(); event.stopPropagation(); }
  });
  audio.addEventListener("timeupdate", () => {
    const part = audio.currentTime / (audio.duration || 1);
    played.setAttribute("width", part * width);
    picture.setAttribute("aria-valuenow", Math.round(100 * part));
  });
  return picture;
}

function player(sound, link, label, seconds = null) {
  if (!sound && !link) return el("p", { class: "muted" }, "The recording cannot be played from this page.");
  const audio = el("audio", { controls: true, preload: sound ? "metadata" : "none", "aria-label": label });
  audio.src = sound ? addressOf(sound) : link;
  const note = el("p", { class: "muted", hidden: true }, "The recording is not where it was when this page was made.");
  audio.addEventListener("error", () => (note.hidden = false));
  const part = sound && seconds > LONGEST ? el("p", { class: "muted" }, `The first ${LONGEST} s of ${number(seconds, 0)} s.`) : null;
  return el("div", { class: "player" }, sound ? waveform(bytesOf(sound.peaks), audio) : null, audio, part, note);
}
