// The page's files and one scene of `scenes.mjs` behind a port, as a router would serve them:
//   node serve.mjs PORT SCENE            to look at it while working on it
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { Scene } from "./scenes.mjs";

const FILES = process.env.PAGE_FILES ?? join(import.meta.dirname, "../../crates/grapevine-node/src/admin/page");
const TYPES = { ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml" };

/** The router's own, word for word: a Rust test holds the two together. */
export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/** Serves a scene; `hold` stops its stream, as a router that died would. */
export function serve(port, name, { token = null } = {}) {
  const scene = new Scene(name);
  const streams = new Set();
  const state = { down: false };
  const json = (answer, value) => answer.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));

  const events = (answer) => {
    answer.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    const send = (event, data) => answer.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    send("fleet", scene.fleet(true));
    send("decisions", scene.decisions(30));
    const timer = setInterval(() => {
      send("fleet", scene.fleet(false));
      send("decisions", scene.decisions(4));
    }, 1000);
    streams.add(answer);
    answer.on("close", () => {
      clearInterval(timer);
      streams.delete(answer);
    });
  };

  const api = (request, answer, path) => {
    if (state.down) return request.socket.destroy();
    if (token && request.headers.authorization !== `Bearer ${token}`) return answer.writeHead(401).end("send GRAPEVINE_ADMIN_TOKEN as `Authorization: Bearer`\n");
    if (path === "/api/v1/events") return events(answer);
    if (path === "/api/v1/tree") return json(answer, scene.tree());
    if (path === "/api/v1/explain") return json(answer, { ...scene.decision(), seq: null, outcome: null, reported_cached_tokens: null, key: { bytes: 9120, boundaries: 22, hash8: "c01dcafe", scheme: 1 } });
    answer.writeHead(404).end();
  };

  const server = createServer((request, answer) => {
    const path = new URL(request.url, "http://any").pathname;
    if (path.startsWith("/api/")) return api(request, answer, path);
    const file = path === "/" ? "index.html" : path.replace(/^\/page\//, "");
    try {
      const body = readFileSync(join(FILES, file));
      answer.writeHead(200, { "content-type": TYPES[extname(file)], "content-security-policy": CSP }).end(body);
    } catch {
      answer.writeHead(404).end();
    }
  });
  const cut = () => {
    state.down = true;
    for (const stream of streams) stream.destroy();
  };
  const mend = () => {
    state.down = false;
  };
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}`, cut, mend, close: () => server.closeAllConnections() || server.close() }));
  });
}

if (process.argv[1] === import.meta.filename) {
  const { url } = await serve(Number(process.argv[2] ?? 0), process.argv[3] ?? "full");
  console.log(url);
}
