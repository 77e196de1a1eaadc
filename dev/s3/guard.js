import s3 from './s3.js'

/** Refuses unsigned `x-amz-` headers like S3 and R2: they could change what a signed URL allows. */
export default {
  fetch(request, env, ctx) {
    // Two Host headers give an invalid URL.
    if (!URL.canParse(request.url)) return new Response('Invalid Host header', { status: 400 })
    const unsigned = unsignedHeaders(request)
    return unsigned.length === 0 ? s3.fetch(request, env, ctx) : refuse(unsigned)
  },
}

function unsignedHeaders({ url, headers }) {
  const inQuery = new URL(url).searchParams.get('X-Amz-SignedHeaders')
  const inHeader = /SignedHeaders=([^,\s]*)/.exec(headers.get('authorization') ?? '')?.[1]
  const signed = (inQuery ?? inHeader ?? '').toLowerCase().split(';')
  return [...headers.keys()].filter((name) => name.startsWith('x-amz-') && !signed.includes(name))
}

function refuse(headers) {
  const message = 'There were headers present in the request which were not signed'
  const body = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>${message}</Message><HeadersNotSigned>${headers.join(', ')}</HeadersNotSigned></Error>`
  return new Response(body, { status: 403, headers: { 'content-type': 'application/xml' } })
}
