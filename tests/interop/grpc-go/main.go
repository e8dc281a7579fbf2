// Asks a gRPC port, by stubs that protoc generated from our messages, what the lines of stdin say: to list messages page by
// page, or to pull all queues of a topic. Prints a line for each message, each queue and each end.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "rocketlens/tests/interop/query/messages"
)

const callTime = time.Minute

var group = &pb.Resource{Name: "GeneratedStubs"}

type question struct {
	Question int    `json:"question"`
	Form     string `json:"form"`
	Topic    string `json:"topic"`
	Value    string `json:"value"`
	Begin    int64  `json:"begin"`
	End      int64  `json:"end"`
	Size     int32  `json:"size"`
}

type line map[string]any

type querying struct {
	admin     pb.AdminClient
	messaging pb.MessagingServiceClient
	endpoints *pb.Endpoints
	told      *json.Encoder
}

func main() {
	host := os.Args[1]
	port := must(strconv.Atoi(os.Args[2]))
	connection := must(grpc.Dial(host+":"+os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32))))
	output := bufio.NewWriter(os.Stdout)
	asking := &querying{
		admin:     pb.NewAdminClient(connection),
		messaging: pb.NewMessagingServiceClient(connection),
		endpoints: &pb.Endpoints{
			Scheme:    pb.AddressScheme_IPv4,
			Addresses: []*pb.Address{{Host: host, Port: int32(port)}},
		},
		told: json.NewEncoder(output),
	}
	asked := json.NewDecoder(os.Stdin)
	for {
		var each question
		err := asked.Decode(&each)
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		if each.Form == "pull" {
			asking.pull(&each)
		} else {
			asking.list(&each)
		}
	}
	check(output.Flush())
}

func (asking *querying) list(each *question) {
	request := &pb.ListMessageRequest{Topic: &pb.Resource{Name: each.Topic}, MaxMessageNums: each.Size}
	switch each.Form {
	case "id":
		request.SearchKey = &pb.ListMessageRequest_MessageId{MessageId: each.Value}
	case "key":
		request.SearchKey = &pb.ListMessageRequest_MessageKey{MessageKey: each.Value}
	case "subscription":
		request.SearchKey = &pb.ListMessageRequest_Subscription{Subscription: each.Value}
	default:
		request.BeginTimestamp = timestamppb.New(time.UnixMilli(each.Begin))
		request.EndTimestamp = timestamppb.New(time.UnixMilli(each.End))
	}
	for pages := 1; ; pages++ {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		answer := must(asking.admin.QueryMessage(ctx, request))
		cancel()
		for _, message := range answer.Messages {
			asking.tell(each, message)
		}
		if answer.Status.GetCode() != pb.Code_OK || answer.ScrollId == "" {
			asking.print(line{"question": each.Question, "status": answer.Status.GetCode().String(), "pages": pages})
			return
		}
		request.ScrollId = &answer.ScrollId
	}
}

func (asking *querying) pull(each *question) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-mq-client-id", "go@1", "x-mq-language", "GOLANG")
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	route := must(asking.messaging.QueryRoute(ctx,
		&pb.QueryRouteRequest{Topic: &pb.Resource{Name: each.Topic}, Endpoints: asking.endpoints}))
	for _, queue := range route.MessageQueues {
		begin := asking.offsetOf(ctx, queue, pb.QueryOffsetPolicy_BEGINNING)
		offset, code := begin, pb.Code_OK
		for code == pb.Code_OK {
			code = pb.Code_CODE_UNSPECIFIED
			answer := must(asking.messaging.PullMessage(ctx,
				&pb.PullMessageRequest{Group: group, MessageQueue: queue, Offset: offset, BatchSize: each.Size}))
			for {
				part, err := answer.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				check(err)
				switch content := part.Content.(type) {
				case *pb.PullMessageResponse_Status:
					code = content.Status.GetCode()
				case *pb.PullMessageResponse_Message:
					asking.tell(each, content.Message)
				case *pb.PullMessageResponse_NextOffset:
					offset = content.NextOffset
				default:
					log.Fatal("a part without content")
				}
			}
		}
		committed := must(asking.messaging.GetOffset(ctx, &pb.GetOffsetRequest{Group: group, MessageQueue: queue}))
		asking.print(line{
			"question": each.Question, "queue": queue.Id, "begin": begin,
			"end": asking.offsetOf(ctx, queue, pb.QueryOffsetPolicy_END), "reached": offset,
			"status": code.String(), "committed": committed.Status.GetCode().String(),
		})
	}
	asking.print(line{"question": each.Question, "status": route.Status.GetCode().String()})
}

func (asking *querying) offsetOf(ctx context.Context, queue *pb.MessageQueue, policy pb.QueryOffsetPolicy) int64 {
	return must(asking.messaging.QueryOffset(ctx,
		&pb.QueryOffsetRequest{MessageQueue: queue, QueryOffsetPolicy: policy})).Offset
}

func (asking *querying) tell(each *question, message *pb.Message) {
	system := message.SystemProperties
	asking.print(line{
		"question": each.Question, "topic": message.Topic.GetName(),
		"queue": system.GetQueueId(), "offset": system.GetQueueOffset(), "id": system.GetMessageId(),
	})
}

func (asking *querying) print(told line) {
	check(asking.told.Encode(told))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
