import { causesOf, errorCode, StartError } from '../start-error.ts'

/** Replaces an error of the S3 client by one line that names the bucket; returns any other error unchanged. */
export function bucketProblem(error: unknown, bucket: string, hint: string): unknown {
  // The S3 client adds this to all of its errors, also to those of Node.
  const failure = causesOf(error).find((cause) => '$metadata' in cause)
  if (!failure) return error
  return new StartError(`${bucket} cannot be used (${errorCode(failure) ?? failure.name}): ${hint}`)
}

/** The same for the bucket that `npm start` runs. */
export const ownBucketProblem = (error: unknown): unknown =>
  bucketProblem(error, "The installation's own bucket", 'is `npm start` still running?')
