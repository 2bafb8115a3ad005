// Browsers start no Worker from file://. The search of the theme is one, so there it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.title = "search"
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.importScripts = () => {}
      this.inside.postMessage = data => this.answer(data)
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => { this.ready = true; this.waiting.splice(0).forEach(data => this.ask(data)) }
      this.inside.document.body.append(script)
    }
    postMessage(data) { this.ready ? this.ask(data) : this.waiting.push(data) }
    ask(data) { this.inside.dispatchEvent(new MessageEvent("message", { data })) }
    answer(data) {
      const event = new MessageEvent("message", { data })
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }
    terminate() { this.inside.frameElement.remove() }
  }
}
