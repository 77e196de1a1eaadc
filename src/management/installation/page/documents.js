// Plain JavaScript, so that any Node version that runs wrangler can run it.
import { readdir, readFile } from 'node:fs/promises'
import { join, posix } from 'node:path'
import { Marked } from 'marked'

const HOME = 'README.md'
const NOT_FOUND = `<h1>Page not found</h1>
<p>The documentation has no page at this address. Search for it above, or begin at the <a href="/docs">start page</a>.</p>
`

/** Renders the Markdown files of a folder: pages by file name, and the sections that the search reads. Fails on a broken link. */
export async function renderDocuments(folder) {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.md')).sort()
  const pages = await Promise.all(
    names.map(async (name) => parsePage(name, await readFile(join(folder, name), 'utf8'))),
  )
  const byName = new Map(pages.map((page) => [page.name, page]))
  const home = byName.get(HOME)
  const navigation = navigationOf(home.tokens)
  const files = pages.map((page) => {
    const content = render(page, byName)
    return { name: fileOf(page.name), text: layout(page, navigation, content) }
  })
  const missing = { name: '404.html', text: layout({ name: '404.md', title: 'Page not found' }, navigation, NOT_FOUND) }
  return { files: [...files, missing], sections: pages.flatMap(sectionsOf) }
}

/** `a/b.md` is served at `/docs/a/b`, and `a/README.md` at `/docs/a`. */
const pathOf = (name) => `/docs/${name.replace(/(^|\/)README\.md$|\.md$/, '')}`.replace(/\/$/, '')
const fileOf = (name) => (name === HOME ? 'index.html' : `${pathOf(name).slice('/docs/'.length)}.html`)

function parsePage(name, text) {
  const tokens = new Marked().lexer(text)
  const seen = new Map()
  for (const token of tokens) {
    if (token.type !== 'heading') continue
    token.plain = plainText(token.tokens)
    token.id = uniqueId(token.plain, seen)
  }
  const headings = tokens.filter(({ type }) => type === 'heading')
  return { name, tokens, title: headings[0].plain, ids: new Set(headings.map(({ id }) => id)) }
}

/** Ids as GitHub makes them, so that links work in both places. */
function uniqueId(text, seen) {
  const id = text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')
  const count = seen.get(id) ?? 0
  seen.set(id, count + 1)
  return count ? `${id}-${count}` : id
}

function plainText(tokens = []) {
  return tokens.map((token) => (token.tokens ? plainText(token.tokens) : (token.text ?? ''))).join('')
}

function render(page, byName) {
  const marked = new Marked({
    renderer: {
      heading({ depth, id, tokens }) {
        return `<h${depth} id="${id}"><a href="#${id}">${this.parser.parseInline(tokens)}</a></h${depth}>\n`
      },
      table(token) {
        return `<div class="table" tabindex="0">${tableHtml(this.parser, token)}</div>\n`
      },
      link({ href, tokens }) {
        return `<a href="${escapeHtml(resolveLink(href, page, byName))}">${this.parser.parseInline(tokens)}</a>`
      },
    },
  })
  return marked.parser(page.tokens)
}

function tableHtml(parser, { header, rows }) {
  const row = (cells, tag) =>
    `<tr>${cells.map(({ tokens }) => `<${tag}>${parser.parseInline(tokens)}</${tag}>`).join('')}</tr>`
  const hasHeader = header.some(({ text }) => text)
  const head = hasHeader ? `<thead>${row(header, 'th')}</thead>` : ''
  return `<table>${head}<tbody>${rows.map((cells) => row(cells, 'td')).join('\n')}</tbody></table>`
}

function resolveLink(href, page, byName) {
  if (/^[a-z]+:/.test(href)) return href
  const [path, id] = href.split('#')
  const name = path ? posix.join(posix.dirname(page.name), path) : page.name
  const target = byName.get(name)
  if (!target || (id && !target.ids.has(id))) throw new Error(`docs/${page.name}: no such page or heading: ${href}`)
  return `${path ? pathOf(name) : ''}${id ? `#${id}` : ''}`
}

/** The navigation: the second-level headings of the home page, each with the links below it. */
function navigationOf(tokens) {
  const groups = []
  for (const token of tokens) {
    if (token.type === 'heading' && token.depth === 2) groups.push({ title: token.plain, links: [] })
    if (token.type !== 'list') continue
    for (const item of token.items) {
      const [link] = item.tokens[0].tokens
      groups.at(-1).links.push({ title: link.text, path: pathOf(link.href) })
    }
  }
  return groups
}

function layout({ name, title }, navigation, content) {
  const current = pathOf(name)
  const group = ({ title: heading, links }) =>
    `<h2>${escapeHtml(heading)}</h2>\n<ul>${links.map((link) => item(link, current)).join('')}</ul>`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} · Pilothouse</title>
<link rel="icon" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/documents.css">
<script src="/docs/search.js" type="module"></script>
</head>
<body>
<header>
<a href="/docs"><strong>Pilothouse</strong></a>
<a href="/docs/api">API reference</a>
<input type="search" id="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off">
<p id="count" role="status"></p>
<ol id="results" hidden></ol>
</header>
<div id="columns">
<nav aria-label="Pages"><details><summary>Pages</summary>
${navigation.map(group).join('\n')}
</details></nav>
<main>
${content}</main>
</div>
</body>
</html>
`
}

const item = ({ title, path }, current) =>
  `<li><a href="${path}"${path === current ? ' aria-current="page"' : ''}>${escapeHtml(title)}</a></li>`

/** A section is a heading and the text below it, up to the next heading. */
function sectionsOf(page) {
  const sections = []
  for (const token of page.tokens) {
    if (token.type === 'heading') {
      const path = `${pathOf(page.name)}${token.depth === 1 ? '' : `#${token.id}`}`
      sections.push({ path, page: page.title, title: token.plain, text: '' })
    } else {
      sections.at(-1).text += `${textOf(token)} `
    }
  }
  return sections
}

function textOf(token) {
  if (token.type === 'table')
    return [token.header, ...token.rows]
      .flat()
      .map(({ tokens }) => plainText(tokens))
      .join(' ')
  if (token.type === 'list') return token.items.map(({ tokens }) => tokens.map(textOf).join(' ')).join(' ')
  return token.tokens ? plainText(token.tokens) : (token.text ?? '')
}

const escapeHtml = (text) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
