import { createServer } from "node:http";

const tides = [
  { harbour: "Oban", high: "06:12", low: "12:30" },
  { harbour: "Leith", high: "02:47", low: "09:01" },
];

createServer((request, response) => {
  const name = new URL(request.url ?? "/", "http://localhost").searchParams.get("harbour");
  const tide = tides.find((entry) => entry.harbour === name);
  response.writeHead(tide ? 200 : 404, { "content-type": "application/json" });
  response.end(JSON.stringify(tide ?? { error: `no harbour is called ${name}` }));
}).listen(8080);
