// The page of `attune serve`: record or choose a file, see words with their certainty, play them, correct and save them.
const $ = (id) => document.getElementById(id);
const RATE = 16000;
let token = sessionStorage.getItem("token") || "";
let models = [];
let collects = false;
let recording = null; // while the microphone is open

async function call(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) { await askForToken(); return call(path, options); }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error?.message || `The server answered ${response.status}.`);
  return body;
}

function askForToken() {
  return new Promise((resolve) => {
    const dialog = $("token-dialog");
    if (!dialog.open) dialog.showModal();
    dialog.addEventListener("close", () => {
      token = $("token").value;
      sessionStorage.setItem("token", token);
      resolve();
    }, { once: true });
  });
}

function report(text, isProblem = false) {
  $("status").textContent = text;
  $("status").classList.toggle("problem", isProblem);
}

async function begin() {
  const health = await call("health");
  models = health.models;
  collects = health.collects;
  if (collects) $("kept").textContent = " unless you save them as training rows";
  if (models.length < 2) return;
  $("models").hidden = false;
  for (const [index, name] of models.entries()) {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: name, checked: index === 0 });
    label.append(box, ` ${name}`);
    $("models").append(label);
  }
}

const chosen = () => models.length < 2 ? models : [...$("models").querySelectorAll(":checked")].map((box) => box.value);

function card(name) {
  const article = $("result").content.firstElementChild.cloneNode(true);
  article.querySelector("h2").textContent = name;
  $("results").append(article);
  return article;
}

async function transcribe(blob, name) {
  await begun;  // a file may be dropped before the models are known
  const wanted = chosen();
  if (!wanted.length) return report("Choose a model.", true);
  $("player").src = URL.createObjectURL(blob);
  $("player").hidden = false;
  draw(blob);
  report("Transcribing …");
  $("results").replaceChildren();
  const began = performance.now();
  const answers = await Promise.allSettled(wanted.map((model) => ask(model, blob, name)));
  const failed = answers.filter((each) => each.status === "rejected");
  report(failed.length ? failed[0].reason.message : `Transcribed in ${((performance.now() - began) / 1000).toFixed(1)} s.`, failed.length > 0);
}

async function ask(model, blob, name) {
  const article = card(model);
  const form = new FormData();
  form.append("model", model);
  form.append("response_format", "verbose_json");
  form.append("timestamp_granularities[]", "word");
  if ($("language").value.trim()) form.append("language", $("language").value.trim());
  form.append("file", blob, name);
  try {
    show(article, await call("v1/audio/transcriptions", { method: "POST", body: form }), blob);
  } catch (error) {
    article.remove();
    throw error;
  }
}

function show(article, found, blob) {
  const place = article.querySelector(".words");
  place.replaceChildren(...(found.words?.length ? found.words.map(wordElement) : [found.text || "(no speech)"]));
  for (const each of [...place.querySelectorAll(".word")].slice(0, -1)) each.after(" ");
  place.classList.toggle("unfinished", !found.text);
  const facts = [`${found.duration.toFixed(1)} s`, found.language].filter(Boolean);
  article.querySelector(".facts").textContent = facts.join(" · ");
  if (!collects) return;
  const correct = article.querySelector(".correct");
  const text = correct.querySelector("textarea");
  correct.hidden = false;
  text.value = found.text;
  correct.querySelector(".save").onclick = () => save(blob, text.value, found.language);
}

function wordElement(word) {
  const element = Object.assign(document.createElement("span"), { className: "word", textContent: word.word, tabIndex: 0 });
  element.style.setProperty("--unsure", Math.max(0, 1 - word.confidence).toFixed(2));
  element.title = `${word.start.toFixed(2)} s, ${Math.round(100 * word.confidence)} %`;
  element.dataset.start = word.start;
  element.dataset.end = word.end;
  element.onclick = () => play(word.start, word.end);
  element.onkeydown = (event) => { if (event.key === "Enter") play(word.start, word.end); };
  return element;
}

let stopAt = Infinity;
function play(start, end) {
  $("player").currentTime = Math.max(0, start - 0.05);
  stopAt = end + 0.05;
  $("player").play();
}

$("player").ontimeupdate = () => {
  const now = $("player").currentTime;
  if (now >= stopAt) { $("player").pause(); stopAt = Infinity; }
  for (const word of document.querySelectorAll(".word"))
    word.classList.toggle("playing", !$("player").paused && now >= +word.dataset.start && now < +word.dataset.end);
};

async function save(blob, text, language) {
  const form = new FormData();
  form.append("text", text);
  if (language) form.append("language", language);
  form.append("file", blob, "recording");
  try {
    const row = await call("collect", { method: "POST", body: form });
    report(`Saved as ${row.id}.`);
  } catch (error) { report(error.message, true); }
}

async function draw(blob) {
  const canvas = $("wave");
  try {
    const audio = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await blob.arrayBuffer());
    canvas.hidden = false;
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = 72 * devicePixelRatio;
    drawPeaks(canvas, audio.getChannelData(0));
    canvas.onclick = (event) => play(audio.duration * event.offsetX / canvas.clientWidth, audio.duration);
  } catch { canvas.hidden = true; } // a format that the browser cannot decode
}

function drawPeaks(canvas, samples) {
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
  const step = samples.length / canvas.width;
  const loudest = samples.reduce((most, each) => Math.max(most, Math.abs(each)), 1e-3);
  for (let x = 0; x < canvas.width; x += 1) {
    let peak = 0;
    for (let i = Math.floor(x * step); i < (x + 1) * step && i < samples.length; i += 1) peak = Math.max(peak, Math.abs(samples[i]));
    const height = Math.max(1, peak / loudest * canvas.height);
    pen.fillRect(x, (canvas.height - height) / 2, 1, height);
  }
}

// The microphone: PCM goes to the WebSocket while one speaks; the whole recording is transcribed once more at the end.
async function startRecording() {
  if (!navigator.mediaDevices) throw new Error("Browsers give the microphone to https pages and to localhost only.");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext({ sampleRate: RATE });
  await context.audioWorklet.addModule("tap.js");
  const tap = new AudioWorkletNode(context, "tap");
  context.createMediaStreamSource(stream).connect(tap);
  recording = { stream, context, pieces: [], done: [], unfinished: "", live: card(chosen()[0] || ""), socket: openSocket() };
  tap.port.onmessage = ({ data }) => send(data);
}

function openSocket() {
  const address = new URL(`v1/realtime?rate=${RATE}&model=${encodeURIComponent(chosen()[0] || "")}`, location.href);
  address.protocol = address.protocol.replace("http", "ws");
  const socket = new WebSocket(address, token ? ["realtime", `openai-insecure-api-key.${token}`] : ["realtime"]);
  socket.onopen = () => {
    const language = $("language").value.trim();
    if (language) socket.send(JSON.stringify({ type: "session.update", session: { audio: { input: { transcription: { language } } } } }));
  };
  socket.onmessage = ({ data }) => showLive(JSON.parse(data));
  return socket;
}

function send(samples) {
  if (!recording) return;
  const pcm = Int16Array.from(samples, (each) => Math.max(-1, Math.min(1, each)) * 32767);
  recording.pieces.push(pcm);
  if (recording.socket.readyState === WebSocket.OPEN) recording.socket.send(pcm.buffer);
}

function showLive(event) {
  if (!recording) return;
  if (event.type === "error") return report(event.error.message, true);
  if (event.type.endsWith("transcription.delta")) recording.unfinished += event.delta;
  if (event.type.endsWith("transcription.completed")) { recording.done.push(event.transcript); recording.unfinished = ""; }
  const rest = Object.assign(document.createElement("span"), { className: "unfinished", textContent: ` ${recording.unfinished}` });
  recording.live.querySelector(".words").replaceChildren(recording.done.join(" "), rest);
}

function stopRecording() {
  const { stream, context, pieces, socket } = recording;
  recording = null;
  for (const track of stream.getTracks()) track.stop();
  context.close();
  socket.close();
  if (pieces.length) return transcribe(wav(pieces), "microphone.wav");
}

function wav(pieces) {
  const size = 2 * pieces.reduce((total, each) => total + each.length, 0);
  const head = new DataView(new ArrayBuffer(44));
  const write = (offset, text) => [...text].forEach((letter, index) => head.setUint8(offset + index, letter.charCodeAt(0)));
  write(0, "RIFF"); head.setUint32(4, 36 + size, true); write(8, "WAVEfmt ");
  head.setUint32(16, 16, true); head.setUint16(20, 1, true); head.setUint16(22, 1, true);
  head.setUint32(24, RATE, true); head.setUint32(28, 2 * RATE, true); head.setUint16(32, 2, true); head.setUint16(34, 16, true);
  write(36, "data"); head.setUint32(40, size, true);
  return new Blob([head, ...pieces], { type: "audio/wav" });
}

function showRecording(isOn) {
  $("record").setAttribute("aria-pressed", String(isOn));
  $("record-label").textContent = isOn ? "Stop" : "Record";
}

$("record").onclick = async () => {
  try {
    showRecording(!recording);
    if (recording) return await stopRecording();
    $("results").replaceChildren();
    $("player").pause();
    $("player").hidden = $("wave").hidden = true; // of the last recording
    report("Listening …");
    await startRecording();
  } catch (error) {
    showRecording(false);
    report(error.message, true);
  }
};
$("file").onchange = () => { const [file] = $("file").files; if (file) transcribe(file, file.name); $("file").value = ""; };
document.body.ondragover = (event) => event.preventDefault();
document.body.ondrop = (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) transcribe(file, file.name);
};
const begun = begin().catch((error) => report(error.message, true));
