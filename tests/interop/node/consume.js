// consume.js NAME_SERVER TOPIC (GROUP TAG|SQL92 EXPRESSION)... : one push consumer of ali-ons for each group.
// Prints each message as a line of JSON on stdout; ends, with a leave-taking, when its input ends.
'use strict';

const { Consumer } = require('ali-ons');

const quiet = { info() {}, debug() {}, warn: console.error, error: console.error };

function startConsumer(nameSrv, topic, group, type, expression) {
  const consumer = new Consumer({
    consumerGroup: group,
    nameSrv,
    // Asked for a list of name servers only, which are given here.
    httpclient: {},
    logger: quiet,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    // Two clients of one machine would otherwise be told apart by the process alone.
    instanceName: `${process.pid}-${group}`,
  });
  consumer.on('error', error => console.error(group, error));
  const subscription = type === 'TAG' ? expression : { expressionType: type, subString: expression };
  consumer.subscribe(topic, subscription, async message => {
    const { topic, queueId, queueOffset, msgId, properties, keys, tags, body } = message;
    const ids = { uniqueKey: properties.UNIQ_KEY, offsetMessageId: msgId };
    console.log(JSON.stringify({ group, topic, queueId, queueOffset, ...ids, keys, tags, body: body.toString('base64') }));
  });
  return consumer;
}

async function main([nameServer, topic, ...rest]) {
  const consumers = [];
  for (let at = 0; at < rest.length; at += 3) {
    consumers.push(startConsumer(nameServer, topic, rest[at], rest[at + 1], rest[at + 2]));
  }
  await new Promise(resolve => process.stdin.on('end', resolve).resume());
  await Promise.all(consumers.map(consumer => consumer.close()));
  process.exit(0);
}

main(process.argv.slice(2)).catch(error => {
  console.error(error);
  process.exit(1);
});
