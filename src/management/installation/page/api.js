const version = new URLSearchParams(location.search).get('version') === 'v2' ? 'v2' : 'v1'
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
    spec: { ...spec, servers: [{ url: location.origin }] },
    dom_id: '#reference',
    deepLinking: true,
    docExpansion: 'list',
    displayRequestDuration: true,
    validatorUrl: null,
  })
}

function explain({ message }) {
  const text = document.createElement('p')
  text.className = 'failure'
  text.setAttribute('role', 'alert')
  text.textContent = `The document could not be loaded (${reply.status}): ${message}`
  document.querySelector('#reference').replaceChildren(text)
}
