// Passes the microphone's samples on, block by block.
registerProcessor("tap", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(1600); // 0.1 s
    this.filled = 0;
  }

  process([[samples]]) {
    for (const each of samples || []) {
      this.block[this.filled++] = each;
      if (this.filled === this.block.length) { this.port.postMessage(this.block.slice()); this.filled = 0; }
    }
    return true;
  }
});
