import { once } from 'node:events'
import { createServer, request as forward } from 'node:http'
import type { AddressInfo } from 'node:net'
import { startS3 } from '../../../dev/s3.ts'

export const BUCKET = 'blobs'
export const CREDENTIALS = { accessKeyId: 'blobs', secretAccessKey: 'blobs-secret' }

const SLOW_DOWN = { status: 503, code: 'SlowDown' }

/** Starts a bucket behind a proxy that counts requests, and refuses as many as it is told to. */
export async function startBucket() {
  const s3 = await startS3({ buckets: [BUCKET], ...CREDENTIALS })
  const target = new URL(s3.endpoint)
  const seen: string[] = []
  let refused = 0
  let refusal = SLOW_DOWN
  const door = createServer((request, response) => {
    seen.push(`${request.method} ${operationOf(request.url ?? '')}${request.headers.range ?? ''}`)
    if (refused > 0) {
      refused -= 1
      request
        .resume()
        .once('end', () => response.writeHead(refusal.status).end(`<Error><Code>${refusal.code}</Code></Error>`))
      return
    }
    const { method, url: path, headers } = request
    const onward = forward({ host: target.hostname, port: target.port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    onward.once('error', () => response.destroy())
    request.once('close', () => {
      if (request.complete) return
      seen.push('cut off')
      onward.destroy()
    })
    request.pipe(onward)
  })
  door.listen(0, '127.0.0.1')
  await once(door, 'listening')
  const { port } = door.address() as AddressInfo
  return {
    endpoint: `http://127.0.0.1:${port}${target.pathname}`,
    /** Returns the operations since its last call. */
    seen: () => seen.splice(0),
    refuse: (count: number, as = SLOW_DOWN) => {
      refused = count
      refusal = as
    },
    async stop() {
      door.close()
      door.closeAllConnections()
      await s3.stop()
    },
  }
}

/** Returns the part of a request's query that names its operation. */
function operationOf(url: string): string {
  const { searchParams } = new URL(url, 'http://bucket')
  const named = ['uploads', 'uploadId', 'partNumber', 'delete', 'list-type'].filter((name) => searchParams.has(name))
  return named.join(' ')
}
