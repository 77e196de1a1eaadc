import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { packTar } from 'modern-tar'

interface Reply {
  status?: number
  type?: string
  location?: string
  body?: string | Uint8Array
}

/** Starts a server of modules and packages that speaks npm's registry protocol. */
export async function startWeb() {
  const pages = new Map<string, Reply>()
  const asked: string[] = []
  const server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '/')
    asked.push(path)
    const { status = 200, type, location, body = '' } = pages.get(path) ?? { status: 404 }
    response.writeHead(status, { ...(type && { 'content-type': type }), ...(location && { location }) }).end(body)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const listed = new Map<string, { 'dist-tags': Record<string, string>; versions: Record<string, unknown> }>()

  return {
    origin,
    pages,
    /** The requested paths, in order. */
    asked,
    serve(path: string, body: string, reply: Reply = {}) {
      pages.set(path, { type: 'text/javascript', ...reply, body })
      return `${origin}${path}`
    },
    /** Publishes a version of a package, which becomes the latest one. */
    async publish(name: string, version: string, files: Record<string, string>, json: object = {}, compress = gzip) {
      const manifest = JSON.stringify({ name, version, ...json })
      const tarball = compress(await pack({ 'package.json': manifest, ...files }))
      const path = `/tarballs/${name}-${version}.tgz`
      const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`
      const known = listed.get(name) ?? { 'dist-tags': {}, versions: {} }
      known['dist-tags'].latest = version
      known.versions[version] = { name, version, dist: { tarball: origin + path, integrity } }
      listed.set(name, known)
      pages.set(path, { body: tarball })
      pages.set(`/${name}`, { type: 'application/json', body: JSON.stringify({ name, ...known }) })
    },
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
export type Web = Awaited<ReturnType<typeof startWeb>>

const gzip = (tar: Uint8Array): Buffer => gzipSync(tar)

async function pack(files: Record<string, string>): Promise<Uint8Array> {
  const entries = Object.entries(files).map(([path, body]) => ({
    header: { name: `package/${path}`, size: Buffer.byteLength(body), type: 'file' as const },
    body,
  }))
  return packTar(entries)
}
