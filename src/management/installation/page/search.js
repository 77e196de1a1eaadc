const input = document.querySelector('#search')
const list = document.querySelector('#results')
const count = document.querySelector('#count')
const RESULTS_MAX = 12
const EXCERPT_CHARACTERS = 140
const LIBRARY = '/docs/minisearch.js'

// Redirects links to the former address of the API reference, which name an operation in the fragment.
if (location.pathname === '/docs' && location.hash.startsWith('#/')) location.replace(`/docs/api${location.hash}`)

// On a wide screen the list of pages is always open.
if (matchMedia('(min-width: 60rem)').matches) document.querySelector('nav details').open = true

/** Only long words match despite typing errors: short ones often differ by a single letter. */
const fuzziness = (term) => (term.length > 4 ? 0.2 : false)

let loading
function loadIndex() {
  loading ??= (async () => {
    const [{ default: MiniSearch }, reply] = await Promise.all([import(LIBRARY), fetch('/docs/search.json')])
    const index = new MiniSearch({
      idField: 'path',
      fields: ['title', 'page', 'text'],
      storeFields: ['path', 'page', 'title', 'text'],
      searchOptions: { boost: { title: 4, page: 2 }, prefix: true, fuzzy: fuzziness, combineWith: 'AND' },
    })
    index.addAll(await reply.json())
    return index
  })()
  return loading
}

async function showResults() {
  const query = input.value.trim()
  const index = await loadIndex()
  if (query !== input.value.trim()) return
  const found = query ? index.search(query).slice(0, RESULTS_MAX) : []
  list.replaceChildren(...found.map(resultItem))
  if (query && found.length === 0) list.append(element('li', 'Nothing found'))
  list.hidden = !query
  count.textContent = query ? `Results: ${found.length}` : ''
}

function resultItem({ path, page, title, text, terms }) {
  const link = element('a', page === title ? title : `${page}: ${title}`)
  link.href = path
  const at = Math.max(0, Math.min(...terms.map((term) => text.toLowerCase().indexOf(term)).filter((n) => n >= 0)) - 40)
  const from = Number.isFinite(at) ? at : 0
  const item = element('li')
  item.append(link, element('p', text.slice(from, from + EXCERPT_CHARACTERS)))
  return item
}

function element(name, text = '') {
  const made = document.createElement(name)
  made.textContent = text
  return made
}

input.addEventListener('focus', loadIndex, { once: true })
input.addEventListener('input', showResults)
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') list.hidden = true
  if (event.key !== '/' || event.target === input) return
  event.preventDefault()
  input.focus()
})
document.addEventListener('click', ({ target }) => {
  if (target !== input) list.hidden = true
})
