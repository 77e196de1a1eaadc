const asked = new URLSearchParams(location.search).get('version')
const version = ['v2', 'storage'].includes(asked) ? asked : 'v1'
const address = `/api/${version}-json`

for (const link of document.querySelectorAll('nav a')) {
  if (link.textContent === version) link.setAttribute('aria-current', 'page')
  if ('document' in link.dataset) link.href = address
}

const reply = await fetch(address)
if (reply.ok) show(await reply.json())
else explain(await reply.json())

function show(spec) {
  window.SwaggerUIBundle({
    // Send requests to the origin of the page, whatever its host name is.
    spec: { ...spec, servers: spec.servers.map(atThisOrigin) },
    dom_id: '#reference',
    deepLinking: true,
    docExpansion: 'list',
    displayRequestDuration: true,
    validatorUrl: null,
  })
}

function atThisOrigin({ url, ...server }) {
  return { ...server, url: url.replace(/^https?:\/\/[^/]+/, location.origin) }
}

function explain({ message }) {
  const text = document.createElement('p')
  text.className = 'failure'
  text.setAttribute('role', 'alert')
  text.textContent = `The document could not be loaded (${reply.status}): ${message}`
  document.querySelector('#reference').replaceChildren(text)
}
