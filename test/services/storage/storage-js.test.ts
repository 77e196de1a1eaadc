import { randomUUID } from 'node:crypto'
import type { StorageApiError } from '@supabase/storage-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { clientOf, newBucket, newStorage, type TestStorage } from '../../support/storage.ts'

const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

let storage: TestStorage
let client: ReturnType<typeof clientOf>
beforeAll(async () => {
  storage = await newStorage()
  client = clientOf(storage, storage.keys.service)
})

/** Returns the data of a call; fails if the call failed. */
async function dataOf<T>(call: PromiseLike<{ data: T | null; error: unknown }>): Promise<T> {
  const { data, error } = await call
  expect(error).toBeNull()
  return data as T
}

async function errorOf(call: PromiseLike<{ data: unknown; error: unknown }>) {
  const { data, error } = await call
  expect(data).toBeFalsy()
  const { status, statusCode, code, message } = error as StorageApiError
  return { status, statusCode, code, message }
}

const newFiles = async (fields?: Record<string, unknown>) => client.from(await newBucket(storage, fields))
const textOf = async (url: string) => (await fetch(url)).text()

describe('buckets', () => {
  it('are created, read, updated, emptied and deleted', async () => {
    const id = `My photos ${randomUUID()}`
    const options = { public: true, fileSizeLimit: '2MB', allowedMimeTypes: ['image/*', 'text/plain'] }
    expect(await dataOf(client.createBucket(id, options))).toEqual({ name: id })
    const bucket = {
      id,
      name: id,
      owner: '',
      public: true,
      file_size_limit: 2_000_000,
      allowed_mime_types: ['image/*', 'text/plain'],
      created_at: TIME,
      updated_at: TIME,
    }
    expect(await dataOf(client.getBucket(id))).toEqual(bucket)
    const changes = { public: false, fileSizeLimit: null, allowedMimeTypes: null }
    expect(await dataOf(client.updateBucket(id, changes))).toEqual({ message: 'Successfully updated' })
    const changed = { ...bucket, public: false, file_size_limit: null, allowed_mime_types: null }
    expect(await dataOf(client.getBucket(id))).toEqual(changed)

    await dataOf(client.from(id).upload('a/b.txt', 'x'))
    expect(await errorOf(client.deleteBucket(id))).toEqual({
      status: 400,
      statusCode: '409',
      code: 'ResourceNotEmpty',
      message: 'The bucket you tried to delete is not empty',
    })
    expect(await dataOf(client.emptyBucket(id))).toEqual({ message: expect.stringContaining('Empty bucket') })
    expect(await dataOf(client.deleteBucket(id))).toEqual({ message: 'Successfully deleted' })
    expect(await errorOf(client.getBucket(id))).toMatchObject({ status: 400, statusCode: '404', code: 'NoSuchBucket' })
  })

  it('are listed in pages, in an order, and by a part of their names', async () => {
    const prefix = randomUUID()
    const names = ['c', 'A', 'b'].map((letter) => `${prefix}-${letter}`)
    for (const name of names) await dataOf(client.createBucket(name))
    const [c, a, b] = names
    const listed = async (options: Parameters<typeof client.listBuckets>[0]) =>
      (await dataOf(client.listBuckets({ search: prefix.toUpperCase(), ...options }))).map(({ name }) => name)
    expect(await listed({ sortColumn: 'created_at', sortOrder: 'desc' })).toEqual([b, a, c])
    expect(await listed({ sortColumn: 'name', sortOrder: 'asc', limit: 2 })).toEqual([a, b])
    expect(await listed({ sortColumn: 'name', sortOrder: 'asc', limit: 2, offset: 2 })).toEqual([c])
    expect((await dataOf(client.listBuckets())).length).toBeGreaterThanOrEqual(3)
  })
})

const BYTES = new TextEncoder().encode('héllo')

function formWith(file: Blob): FormData {
  const form = new FormData()
  form.append('metadata', '{"by":"form"}')
  form.append('picture', file, 'name of the file.png')
  return form
}

describe('an upload', () => {
  it.each([
    ['a string', () => 'héllo', 'text/plain;charset=UTF-8'],
    ['a Blob', () => new Blob([BYTES], { type: 'image/png' }), 'image/png'],
    ['a File', () => new File([BYTES], 'ö.bin', { type: 'application/pdf' }), 'application/pdf'],
    ['a FormData', () => formWith(new Blob([BYTES], { type: 'image/gif' })), 'image/gif'],
    ['an ArrayBuffer', () => BYTES.buffer, 'text/plain;charset=UTF-8'],
    ['a Buffer', () => Buffer.from(BYTES), 'text/plain;charset=UTF-8'],
    ['a stream', () => new Blob([BYTES]).stream(), 'text/plain;charset=UTF-8'],
  ])('of %s is downloaded unchanged', async (_, body, contentType) => {
    const files = await newFiles()
    const uploaded = await dataOf(files.upload('/a//b.txt/', body(), { cacheControl: '60' }))
    expect(uploaded).toEqual({ path: 'a/b.txt', id: UUID, fullPath: `${filesName(files)}/a/b.txt` })
    expect(await (await dataOf(files.download('a/b.txt'))).text()).toBe('héllo')
    expect(await dataOf(files.info('a/b.txt'))).toMatchObject({ size: 6, contentType, cacheControl: 'max-age=60' })
  })

  it('has the requested metadata', async () => {
    const files = await newFiles()
    const metadata = { by: 'ünicode', deep: { n: [1, null] } }
    await dataOf(files.upload('raw', 'x', { contentType: 'text/css', metadata }))
    await dataOf(files.upload('form', new Blob(['x'], { type: 'text/css' }), { metadata }))
    for (const name of ['raw', 'form']) {
      const { id, version } = await dataOf(files.info(name))
      expect([id, version]).toEqual([UUID, UUID])
      expect(await dataOf(files.info(name))).toEqual({
        ...{ id, name, version, bucketId: filesName(files), size: 1, contentType: 'text/css' },
        ...{ cacheControl: 'max-age=3600', etag: '"9dd4e461268c8034f5c8564e155c67a6"', metadata },
        ...{ contentEncoding: null, lastModified: TIME, createdAt: TIME },
      })
    }
  })

  it('replaces an object only if that is requested, as an update does', async () => {
    const files = await newFiles()
    const { id } = await dataOf(files.upload('a', 'one'))
    expect(await errorOf(files.upload('a', 'two'))).toEqual({
      status: 400,
      statusCode: '409',
      code: 'KeyAlreadyExists',
      message: 'The resource already exists',
    })
    expect(await dataOf(files.upload('a', 'three', { upsert: true }))).toMatchObject({ id })
    expect(await (await dataOf(files.download('a'))).text()).toBe('three')
    expect(await dataOf(files.update('a', new Blob(['four'])))).toMatchObject({ id })
    expect(await (await dataOf(files.download('a'))).text()).toBe('four')
    await dataOf(files.update('new', 'made by an update'))
    expect(await dataOf(files.exists('new'))).toBe(true)
  })
})

const filesName = (files: object) => (files as unknown as { bucketId: string }).bucketId

describe('an object', () => {
  it('is distinguished from a missing one', async () => {
    const files = await newFiles()
    await dataOf(files.upload('a', 'x'))
    expect(await files.exists('a')).toEqual({ data: true, error: null })
    expect(await files.exists('b')).toMatchObject({ data: false, error: { code: 'NoSuchKey' } })
    const missing = { status: 400, statusCode: '404', code: 'NoSuchKey', message: 'Object not found' }
    expect(await errorOf(files.info('b'))).toEqual(missing)
    expect(await errorOf(files.download('b'))).toEqual(missing)
    await expect(client.from('nowhere').exists('a')).rejects.toMatchObject({ code: 'NoSuchBucket' })
  })

  it('is copied and moved, also to another bucket', async () => {
    const [files, others] = [await newFiles(), await newFiles()]
    const metadata = { by: 'me' }
    const { id } = await dataOf(files.upload('a', 'x', { contentType: 'text/css', metadata }))
    const destinationBucket = filesName(others)
    expect(await dataOf(files.copy('a', 'b/c'))).toEqual({ path: `${filesName(files)}/b/c` })
    expect(await dataOf(files.copy('a', 'd', { destinationBucket }))).toEqual({ path: `${destinationBucket}/d` })
    expect(await dataOf(files.move('a', 'e'))).toEqual({ message: 'Successfully moved' })
    expect(await dataOf(files.move('e', 'f', { destinationBucket }))).toEqual({ message: 'Successfully moved' })
    for (const [there, name] of [
      [files, 'b/c'],
      [others, 'd'],
      [others, 'f'],
    ] as const) {
      expect(await (await dataOf(there.download(name))).text()).toBe('x')
      expect(await dataOf(there.info(name))).toMatchObject({ contentType: 'text/css', size: 1, metadata })
    }
    expect((await dataOf(others.info('f'))).id).toBe(id)
    expect((await dataOf(others.info('d'))).id).not.toBe(id)
    expect(await Promise.all(['a', 'e'].map(async (name) => (await files.exists(name)).data))).toEqual([false, false])
    expect(await errorOf(others.move('d', 'f'))).toMatchObject({ statusCode: '409', code: 'ResourceAlreadyExists' })
    expect(await errorOf(others.copy('d', 'f'))).toMatchObject({ statusCode: '409', code: 'KeyAlreadyExists' })
  })

  it('is removed together with others, and missing ones are left out', async () => {
    const files = await newFiles()
    for (const name of ['a', 'b/c', 'b/d']) await dataOf(files.upload(name, 'x'))
    const removed = await dataOf(files.remove(['a', 'b/c', 'b', 'nothing']))
    expect(removed.map(({ name }) => name).sort()).toEqual(['a', 'b/c'])
    expect((await dataOf(files.list())).map(({ name }) => name)).toEqual(['b'])
  })
})

describe('a URL', () => {
  it.each(['a.txt', 'dir/ö & ü + (1)=2;3,4.txt', '日本/🙂.txt'])('of %s serves it', async (name) => {
    const files = await newFiles()
    await dataOf(files.upload(name, 'content'))
    const { signedUrl } = await dataOf(files.createSignedUrl(name, 60))
    expect(await textOf(signedUrl)).toBe('content')
    const [one, missing] = await dataOf(files.createSignedUrls([name, 'nothing'], 60, { download: 'ä.txt' }))
    expect(missing).toEqual({
      error: 'Either the object does not exist or you do not have access to it',
      path: 'nothing',
      signedURL: null,
      signedUrl: null,
    })
    const reply = await fetch(one?.signedUrl ?? '')
    expect([await reply.text(), reply.headers.get('content-disposition')]).toEqual([
      'content',
      expect.stringMatching(/^attachment; filename=.*; filename\*=UTF-8''/),
    ])
    const { publicUrl } = files.getPublicUrl(name).data
    expect((await fetch(publicUrl)).status).toBe(400)
    await client.updateBucket(filesName(files), { public: true })
    expect(await textOf(publicUrl)).toBe('content')
  })

  it('may request a download, with a name or without', async () => {
    const files = await newFiles({ public: true })
    await dataOf(files.upload('a.txt', 'x'))
    for (const [download, disposition] of [
      [true, 'attachment;'],
      ['b.txt', "attachment; filename=b.txt; filename*=UTF-8''b.txt"],
    ] as const) {
      const { signedUrl } = await dataOf(files.createSignedUrl('a.txt', 60, { download }))
      for (const url of [signedUrl, files.getPublicUrl('a.txt', { download }).data.publicUrl]) {
        expect((await fetch(url)).headers.get('content-disposition')).toBe(disposition)
      }
    }
  })

  it.each(['a.txt', 'ö/🙂 +.txt'])('accepts an upload to %s, once', async (name) => {
    const files = await newFiles()
    const { token, path, signedUrl } = await dataOf(files.createSignedUploadUrl(name))
    expect([path, new URL(signedUrl).searchParams.get('token')]).toEqual([name, token])
    const fullPath = `${filesName(files)}/${name}`
    const options = { contentType: 'text/css' }
    expect(await dataOf(files.uploadToSignedUrl(name, token, 'x', options))).toEqual({ path: name, fullPath })
    expect(await errorOf(files.uploadToSignedUrl(name, token, 'y'))).toMatchObject({ code: 'KeyAlreadyExists' })
    expect(await dataOf(files.info(name))).toMatchObject({ size: 1, contentType: 'text/css' })
    expect(await errorOf(files.createSignedUploadUrl(name))).toMatchObject({ code: 'KeyAlreadyExists' })
    const again = await dataOf(files.createSignedUploadUrl(name, { upsert: true }))
    await dataOf(files.uploadToSignedUrl(name, again.token, new Blob(['form'])))
    expect(await (await dataOf(files.download(name))).text()).toBe('form')
    expect(await errorOf(files.uploadToSignedUrl(name, again.token, 'y'))).toMatchObject({ code: 'InvalidSignature' })
  })
})

describe('a list', () => {
  const NAMES = ['b.txt', 'A.txt', 'dir/two.txt', 'dir/One.txt', 'dir/sub/x', 'Docs/z', 'c.txt']
  let files: ReturnType<typeof client.from>
  beforeAll(async () => {
    files = await newFiles()
    for (const name of NAMES) await dataOf(files.upload(name, name))
  })
  type Options = Parameters<typeof files.list>[1]
  const byTime = (order: string) => ({ sortBy: { column: 'created_at', order } })

  it.each<[string, string, Options, string[]]>([
    ['a bucket', '', undefined, ['A.txt', 'b.txt', 'c.txt', 'dir', 'Docs']],
    ['a folder', 'dir', undefined, ['One.txt', 'sub', 'two.txt']],
    ['a folder, whatever its case', 'DIR/', undefined, ['One.txt', 'sub', 'two.txt']],
    ['a page', '', { limit: 2, offset: 1 }, ['b.txt', 'c.txt']],
    ['the other order', '', { sortBy: { column: 'name', order: 'desc' } }, ['Docs', 'dir', 'c.txt', 'b.txt', 'A.txt']],
    ['folders, then files by time', '', byTime('asc'), ['Docs', 'dir', 'b.txt', 'A.txt', 'c.txt']],
    ['files by time, the latest first', 'dir', byTime('desc'), ['sub', 'One.txt', 'two.txt']],
    ['what starts so', '', { search: 'd' }, ['dir', 'Docs']],
    ['what starts so in a folder', 'dir', { search: 'T' }, ['two.txt']],
    ['nothing', 'nowhere', undefined, []],
    ['nothing where a file is', 'b.txt', undefined, []],
  ])('returns %s', async (_, folder, options, names) => {
    expect((await dataOf(files.list(folder, options))).map(({ name }) => name)).toEqual(names)
  })

  it('describes a file completely, and a folder not at all', async () => {
    const [sub] = await dataOf(files.list('dir', { search: 'sub' }))
    expect(sub).toEqual({
      ...{ name: 'sub', id: null, metadata: null, updated_at: null, created_at: null, last_accessed_at: null },
    })
    const [file] = await dataOf(files.list('dir', { search: 'one' }))
    expect(file).toEqual({
      ...{ name: 'One.txt', id: UUID, updated_at: TIME, created_at: TIME, last_accessed_at: TIME },
      metadata: {
        eTag: expect.stringMatching(/^"[0-9a-f]{32}"$/),
        size: 11,
        mimetype: 'text/plain;charset=UTF-8',
        cacheControl: 'max-age=3600',
        lastModified: TIME,
        contentLength: 11,
        httpStatusCode: 200,
      },
    })
  })

  type PageOptions = Parameters<typeof files.listV2>[0]
  const ALL = [...NAMES].sort()
  const byCreation = (order: 'asc' | 'desc') => ({ sortBy: { column: 'created_at' as const, order } })
  const byName = (order: 'asc' | 'desc') => ({ sortBy: { column: 'name' as const, order } })

  it.each<[string, PageOptions, string[][]]>([
    ['all names', { limit: 3 }, [ALL.slice(0, 3), ALL.slice(3, 6), ALL.slice(6)]],
    [
      'all names, backwards',
      { limit: 3, ...byName('desc') },
      [ALL.slice(4).reverse(), ALL.slice(1, 4).reverse(), ALL.slice(0, 1)],
    ],
    ['by time', { limit: 3, ...byCreation('asc') }, [NAMES.slice(0, 3), NAMES.slice(3, 6), NAMES.slice(6)]],
    [
      'by time, backwards',
      { limit: 3, ...byCreation('desc') },
      [NAMES.slice(4).reverse(), NAMES.slice(1, 4).reverse(), NAMES.slice(0, 1)],
    ],
    ['folders', { limit: 2, with_delimiter: true }, [['Docs/', 'A.txt'], ['b.txt', 'c.txt'], ['dir/']]],
    [
      'folders, backwards',
      { limit: 2, with_delimiter: true, ...byName('desc') },
      [['dir/', 'c.txt'], ['Docs/', 'b.txt'], ['A.txt']],
    ],
    [
      'folders by time',
      { limit: 2, with_delimiter: true, ...byCreation('asc') },
      [['Docs/', 'dir/'], ['b.txt', 'A.txt'], ['c.txt']],
    ],
    ['a folder', { limit: 1, with_delimiter: true, prefix: 'dir/' }, [['dir/One.txt'], ['dir/sub/'], ['dir/two.txt']]],
    ['a beginning, in its case', { prefix: 'd' }, [['dir/One.txt', 'dir/sub/x', 'dir/two.txt']]],
    ['nothing', { prefix: 'nowhere' }, [[]]],
  ])('returns page after page: %s', async (_, options, expected) => {
    const pages: string[][] = []
    for (let cursor: string | undefined; pages.length <= NAMES.length; ) {
      const page = await dataOf(files.listV2({ ...options, ...(cursor && { cursor }) }))
      pages.push([...page.folders, ...page.objects].map(({ name }) => name))
      expect(page.hasNext).toBe(page.nextCursor !== undefined)
      cursor = page.nextCursor
      if (!cursor) break
    }
    expect(pages).toEqual(expected)
  })

  it('returns files with all their fields, and folders only by name', async () => {
    const { folders, objects, ...rest } = await dataOf(files.listV2({ with_delimiter: true, prefix: 'dir/' }))
    expect(rest).toEqual({ hasNext: false })
    const times = { updated_at: TIME, created_at: TIME, last_accessed_at: TIME }
    expect(folders).toEqual([
      {
        ...{ key: 'dir/sub', name: 'dir/sub/', id: null, metadata: null },
        ...{ updated_at: null, created_at: null, last_accessed_at: null },
      },
    ])
    expect(objects).toEqual(
      ['dir/One.txt', 'dir/two.txt'].map((name) => ({
        ...{ key: name, name, id: UUID, metadata: expect.objectContaining({ size: 11 }), ...times },
      })),
    )
    const flat = await dataOf(files.listV2({ limit: 1 }))
    expect(flat.objects).toEqual([
      { name: 'A.txt', id: UUID, metadata: expect.objectContaining({ size: 5 }), ...times },
    ])
  })
})
