import { createReadStream } from 'node:fs'
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { MissingObject } from '../../host/backups/errors.ts'
import { type ArchiveStore, s3Store } from '../../host/backups/store.ts'
import { errorCode, StartError } from '../start-error.ts'
import { bucketProblem, ownBucketProblem } from './bucket-problem.ts'

/** The place of a backup: a folder, or a bucket below a prefix. Bodies are streamed. */
export interface BackupPlace extends Pick<ArchiveStore, 'put' | 'get'> {
  /** Absent for a bucket. */
  folder?: string
  isEmpty(): Promise<boolean>
}

/** Opens a path, or `s3://bucket/prefix` with the AWS variables of the environment. */
export function openPlace(text: string, env: NodeJS.ProcessEnv): BackupPlace {
  const [, bucket, prefix = ''] = /^s3:\/\/([^/]+)\/?(.*)$/.exec(text) ?? []
  if (bucket) return bucketPlace(bucket, prefix.replace(/\/*$/, prefix === '' ? '' : '/'), env)
  if (/^\w+:\/\//.test(text))
    throw new StartError(`${text} is not a place for a backup: give a folder or s3://bucket/prefix.`)
  return folderPlace(resolve(text))
}

function folderPlace(folder: string): BackupPlace {
  return {
    folder,
    async isEmpty() {
      const names = await readdir(folder).catch((error) => {
        if (errorCode(error) === 'ENOENT') return []
        throw new StartError(`Cannot read ${folder} (${errorCode(error)}).`)
      })
      return names.length === 0
    },
    async put(key, body) {
      const file = join(folder, key)
      await mkdir(dirname(file), { recursive: true, mode: 0o700 })
      const part = `${file}.part`
      try {
        await writeFile(part, body, { mode: 0o600, flush: true })
        await rename(part, file)
      } catch (error) {
        await rm(part, { force: true })
        throw error
      }
    },
    async *get(key) {
      try {
        yield* createReadStream(join(folder, key))
      } catch (error) {
        throw errorCode(error) === 'ENOENT' ? new MissingObject(key) : error
      }
    },
  }
}

function bucketPlace(bucket: string, prefix: string, env: NodeJS.ProcessEnv): BackupPlace {
  const store = s3Store({ bucket, ...awsSettings(env) })
  const problem = (error: unknown) => bucketProblem(error, `The bucket ${bucket}`, HINT)
  return {
    async isEmpty() {
      for await (const _object of mapErrors(store.each(prefix), problem)) return false
      return true
    },
    async put(key, body) {
      // The body may come from the installation's own bucket, whose errors are not those of this one.
      await store.put(prefix + key, mapErrors(body, ownBucketProblem)).catch((error) => {
        throw problem(error)
      })
    },
    get: (key) => mapErrors(store.get(prefix + key), problem),
  }
}

const HINT = 'check its name, the AWS_… variables and the rights of the key.'

async function* mapErrors<Item>(items: AsyncIterable<Item>, map: (error: unknown) => unknown): AsyncGenerator<Item> {
  try {
    yield* items
  } catch (error) {
    throw map(error)
  }
}

function awsSettings(env: NodeJS.ProcessEnv) {
  const {
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
    AWS_SESSION_TOKEN: sessionToken,
  } = env
  if (!accessKeyId || !secretAccessKey)
    throw new StartError('Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the keys of the bucket.')
  const region = env.AWS_REGION || env.AWS_DEFAULT_REGION || 'us-east-1'
  const endpoint = env.AWS_ENDPOINT_URL_S3 || env.AWS_ENDPOINT_URL || `https://s3.${region}.amazonaws.com`
  return { endpoint, region, accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) }
}
